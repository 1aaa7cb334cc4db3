"""What answers with trained models: a process beside each node's agent, and the cut of a model into stages.

A model's artifact says how to build it (task, arguments, shape of an input). A server builds it, or only
some of its layers, and keeps as many as its memory limit allows, the least recently used going first.
Requests that are there together are computed together; a stage of a split model passes its activations
straight to the next stage and keeps them until they are known to have arrived, so that a lost stage can be
replaced and only what was lost is computed again.
"""
