"""What runs in a training process: one process a slot, forked by the node agent's fork server.

`python -m peerloom.worker` imports all that is slow and then only forks (`fork_server`): a worker is there in
milliseconds. A worker reads one line on its standard input, its assignment, opens a session with the trainer
(`trainer_session`), joins the generations that the trainer forms (`run`), and trains (`loop`). When a
generation breaks the process stays, and joins the next one with the state it has.

    group/      the process group of a generation: meeting, waiting for collectives, breaking
    joining/    how a newcomer gets the state: a broadcast, or a catch-up while the others train on
    sync/       how local gradients become one update
    federated/  rounds in which clients train on data of their own
    stale/      steps of gradients that may be of older parameters
    tasks/      the built-in tasks, and importing others
"""
