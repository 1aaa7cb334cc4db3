"""What a job's workers make.

`distributing` moves artifacts between here and the nodes, `collecting` fetches models and checkpoints and
leaves copies, `checkpoints` keeps one job's newest. Before a model is kept `evaluating` has it evaluated by a
process of its own, `evaluator_process`; `evaluation_rules` say which models, and what follows.
"""
