"""Answers of trained models: the cut of a model into stages, the servers, and the client's side.

A model's artifact says how to build it (task, arguments, shape of an input). `server` runs beside each
node's agent; `client` chooses between asking a node that holds the model, splitting it over several, and
computing in its own process; `cut` says which layers go where.
"""
