"""The node agent: lends one machine, politely.

An agent keeps a secret in its state folder, so that the registry knows it again, and holds a lease alive
with a stream of heartbeats: a stream that breaks is opened again, a suspicion is refuted with a higher
incarnation, and a lease that ended is replaced by registering anew (`membership`).

A trainer asks for slots; `rules` accepts or refuses, `slots` holds what was accepted for a while. Starting
workers hands each its assignment on standard input. Importing torch costs seconds, so processes that have
done it already wait in a pool (`warm_pool`) as long as slots are idle: a job starts in milliseconds. They
are never forked from the agent. A process whose standard input ends knows that its agent died, and ends
too. The end of a worker is seen by waiting for its process, not by asking, and told to all who watch
(`crew`). Artifacts are kept, given and fetched by the kit's
exchange; which of them are here is told to the registry in changes (`advertising`), and what peers gave or
faked is reported to the selector (`exchange`).
"""
