"""Processes of the tests are forked from one that has imported what they need, instead of each importing it.

`program` is that process; `asking` makes `subprocess` ask it; `becoming` makes a fork what was asked for.
"""
