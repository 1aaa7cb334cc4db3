"""Jobs train while random faults strike, then everything that was promised is checked (`make chaos`).

The faults, the lots that draw their victims and the pauses are fixed before anything starts (`faults`), so a
seed that fails replays with the same faults in the same order; the system's own timing is its own. As root
the nodes are network namespaces behind a bridge and may be cut off (`places`); else they share the loopback
interface and aren't; `replicas` has standbys of the coordinators, on PostgreSQL. `jobs` trains, `promises`
says what must hold afterwards, and `left_behind` what must not be there then. `make soak` (benchmarks/soak)
does the same for hours.
"""
