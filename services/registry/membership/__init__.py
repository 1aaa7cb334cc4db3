"""Which nodes are members of the network, and which of them live.

The registrar and the failure detector ask `decisions`, commit the transition that follows, and only then
change the table.
"""
