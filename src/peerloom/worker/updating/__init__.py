"""What turns the sum of gradients of a step into the next parameters, the same on every rank to the last bit.

`updater` is the one way there: the loop, the replay of a newcomer and a resumed job all take it. `clipping`
and `precision` are parts of it; `task_updater` makes that of a task;
`named_state` is how its state is written, by the names of parameters.
"""
