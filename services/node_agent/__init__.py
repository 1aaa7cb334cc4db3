"""The node agent: lends one machine, politely.

    membership/   this node among the others. A secret in the state folder proves that it is the same node
                  (`identity`). `registration` registers it, again whenever its lease has ended; `heartbeats`
                  keeps the lease alive with a stream, opens it again when it breaks, and refutes a suspicion
                  with a higher incarnation. `advertising` tells which artifacts are here, in changes.
    owner/        what the owner allows. `policy` decides whether the machine is lent just now, from hours,
                  load and typing; `leaving` which worker has to go; `enforcement` has it go. `inventory` and
                  `measuring` find what the machine has and how fast it is, `load_meter` how busy.
    workers/      `slots` holds what was accepted for a while, `local_pool` turns it into workers and tells of
                  each start and end to all who watch. `fork_client` keeps one process that has imported what
                  takes seconds and forks a worker in milliseconds; nothing is ever forked from the agent.
    tunnels/      the way through NAT. The registry dials this node back; where it doesn't get through,
                  `way_in` keeps a tunnel to a node that passes connections on (`relay_server`).

A trainer asks for slots; `work_requests` accepts or refuses, with the reason. A worker gets its assignment on
standard input; the end of that input tells it that its agent died, and it ends too. The end of a worker is
seen by waiting for its process, not by asking. Artifacts are kept, given and fetched by `peerloom.artifacts`
(`artifact_exchange`); what peers gave or faked is reported to the selector. Models answer in a process of
their own (`inference_process`).

What changes about the node stands in one record, `NodeStatus`; each change wakes whoever has to act.
"""
