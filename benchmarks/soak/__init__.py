"""The whole system under faults for hours, and whether anything of it grows (`make soak`).

Jobs follow each other and questions are asked all the time, while faults that `benchmarks.chaos` knows strike
every 2 s. `stretches` spares the coordinators most of the time, so that they live long enough to be looked
at. `sampling` reads memory, descriptors, threads and disk of each service; `asking` asks, and `questions`
keeps what answers take; `growth` says by how much all this grows in an hour, and how sure that is; `summary`
makes the figures of it.
"""
