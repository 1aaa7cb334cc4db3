"""The elastic loop in the training loops of others: who uses one of these restarts nobody.

`lightning` is a strategy for PyTorch Lightning's Trainer, `accelerate` an Accelerator; both go through
`epoch_batches`, which gives the run's one loop an epoch at a time. Each needs the library that it is for.
"""
