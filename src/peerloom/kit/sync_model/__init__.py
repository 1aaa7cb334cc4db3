"""A step's time predicted before it is made, and the best way to synchronise chosen by that. Pure functions.

A scheme says which gradients leave together, when, and which way (`scheme`); a setting has the network, the
layers and the codecs' speeds (`sync_setting`). Layers become buckets (`buckets`), each a chain of rounds of
messages by its topology (`message_rounds`, `doubling_rounds`, `site_rounds`; averages of `group_rounds`) and
of codec work (`bucket_stages`; of powersgd `low_rank_plan`). A discrete-event simulation runs one processor
and the links' queues through a step (`step_simulation`); what comes of it has its parts and a timeline
(`prediction`). `sync_choice` chooses among the methods that a quality allows.

A message of l bytes costs a + b * l (Hockney, 1994): `access_links` has a, the start-up, and the rates of
each rank's link. All ranks compute alike, since shares of the batch follow their speed. Links lose nothing
here, and nobody else uses them.
"""
