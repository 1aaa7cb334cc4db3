"""The way through NAT: a node that nobody reaches keeps a tunnel to one that passes connections on to it.

splice           `Splice`: two sockets whose bytes go from one to the other
relay_limits     `RelayLimits`: how much a node gives to others
relay_server     `RelayServer`: at the node that offers it, who has a tunnel, and where connections meet
served_tunnel    `ServedTunnel`: one of its tunnels, with the ports that were opened for it
tunnel           `Tunnel`: at the node behind NAT, its end of that
way_in           `WayIn`: whether this node is reached directly, or through whom, and where just now
worker_ports     `WorkerPorts`: a worker's own listening ports, and no others, get a way in
node_tunnels     `NodeTunnels`: the way in and the relay, put together
"""
