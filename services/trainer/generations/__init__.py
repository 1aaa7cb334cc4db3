"""One membership of a job's process group after the other.

`decisions` says when one is formed, broken or ended, `driving` does what it says, `forming` tells the
workers. They find each other through `workers.rendezvous`.
"""
