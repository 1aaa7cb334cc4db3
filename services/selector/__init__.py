"""The selector: knows whom to trust and whom to choose.

It follows the registry's log of events from a cursor that it keeps, and takes first-hand evidence from
whoever asked a node for work. A fact moves a belief exactly once: the evidence, the belief it led to with
every term, and (for the registry's events) the cursor are written in one transaction, and an evidence id
that is already there changes nothing. Only then are the columns in memory changed, and only then does the
reporter get its answer; so a selector that is killed anywhere in between comes back with the truth.

Choosing reads memory alone. `catalog` holds the nodes as arrays, `choosing` says with a few operations on
whole arrays which nodes are candidates and why the others are not, and a policy from `policies` ranks the
candidates. `belief.formula` (the thesis's), `belief.track` and `policies` know neither database nor network,
so that a simulator can use the very same ones.
"""
