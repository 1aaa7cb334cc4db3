"""The process beside a node's agent that answers with trained models, whole or a stage of one.

It builds a model, or some of its layers, and keeps as many as its memory limit allows, the least recently
used going first. Requests that are there together are computed together; a stage of a split model passes
its activations straight to the next stage and keeps them until they are known to have arrived.

Serving knows no torch: it asks a `computing` for models, which is that of `torch_computing` (with `building`
and `layers`) where `__main__` puts the process together by `serving`, and a script where users test.
"""
