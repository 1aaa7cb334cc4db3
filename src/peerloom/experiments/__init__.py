"""The thesis's experiments, run on a live system, and the pictures of what a system remembers.

Each experiment is a module with `run(settings, tell)`, which returns a plain mapping, and `draw(result)`,
which makes a picture of it; `catalogue` knows them all. An experiment starts an embedded system in a
temporary folder, works it through the SDK (or, where it asks for compute without training, through the same
calls as the trainer makes) and leaves nothing behind. `network_scaling` and `network_heterogeneous` start a
testbed behind ns-3, where computing is emulated by devices of `emulation`. Training data are the user's
files or, for timing only, generated files of the same format (`datasets`). What the thesis measured is in
`thesis`. torch is never imported here: the nodes train.
"""
