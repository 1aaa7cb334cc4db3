"""Gloo's connections by TLS: gloo talks to this process over loopback, and relays talk to each other.

tls      `JobTls`: who may be at the other end, and TLS whose two directions have a thread each
link     `RelayLink`: one connection of gloo's, carried to the other relay and back
relay    `Relay`: a worker's port for the other relays, and `RelayedGeneration`: one generation's links
reached  `forwarded`: where others reach a port of a worker whose node is behind NAT
store    `RelayedStore`: tells each member the others' addresses on this side
"""
