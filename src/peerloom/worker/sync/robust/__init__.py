"""One update of gradients of which some may lie: one vote an owner, and a rule that bounds what liars reach.

A vote is the mean gradient over the samples that an owner's workers had in the step (`votes`). From five
votes on, a rule (`vote_rules`) takes the place of the mean; with fewer, a liar can't be told from an honest
worker with unusual samples, so only values that aren't finite are refused. Each worker applies the rule to
its own part of the gradient (`exchange`), so that the bytes stay those of an all-reduce.
"""
