"""The trainer: takes a job from submission to a model.

A job asks the selector whom to ask, asks them for slots, and takes what they give. Each slot becomes a
worker: a process that opens a session here. When all have come the trainer forms the first generation
(a process group with ranks and a fresh prefix in the store that it hosts). When one is lost, the others
leave the collective, keep their state, and are formed into the next generation, which begins from the
most advanced committed step. At the end the model is fetched from rank 0's node, kept here, and copied
to the job's other nodes.

All that a job is and all that happens to it lies in the database before anybody hears of it, so a
trainer that dies goes on where it was; the workers don't wait for it.
"""
