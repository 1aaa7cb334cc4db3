"""The control plane in one process: real services on virtual time, an in-memory network and faults by seed.

One seed is one history. `loop` is the time; `network`, `channels` and `servers` stand in for gRPC;
`processes` can be killed, and `databases` outlive them; `wiring` hands the real services what they need;
`starter`, `training` and `collective` are the training as the session protocol sees it; `clients` ask for
it; `faults` go wrong; `observed` and `promises` say what must hold; `simulate` runs one history,
`shrinking` makes a broken one short, `planted` breaks the product on purpose.

    python -m tests.simulation --seed 7        one history, told
    python -m tests.simulation --histories 100 many, until one breaks a promise
"""
