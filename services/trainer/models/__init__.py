"""What a job's workers make.

`distributing` moves artifacts between here and the nodes, `collecting` fetches models and checkpoints and
leaves copies, `checkpoints` keeps one job's newest.
"""
