"""The control plane in one process: real services on virtual time, an in-memory network and faults by seed.

One seed is one history. The system itself, its time, network, processes and scripted trainings, is that of
`peerloom.testing`; here are its users (`clients`), what goes wrong (`faults`) and who leads then
(`takeovers`), how wrong the machines' clocks are (`wall_clocks`), what must hold (`observed` and
`promises`), what replaces chance and clocks while it lasts (`surroundings`), one history (`simulate`), a
broken one made short (`shrinking`), and the product broken on purpose (`planted`, `planted_takeovers`).

    python -m tests.simulation --seed 7        one history, told
    python -m tests.simulation --histories 100 many, until one breaks a promise
"""
