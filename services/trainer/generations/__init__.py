"""One membership of a job's process group after the other.

`decisions` says when one is formed, broken or ended, `driving` does what it says, `forming` tells the
workers. They meet in the key-value store of the first of them that has one.
"""
