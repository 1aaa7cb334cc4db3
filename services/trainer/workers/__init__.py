"""A job's training processes: the state of each, and how the trainer hears and reaches them.

`state` is one worker's phase, `pool` keeps all workers' states, `sessions` turns what they say into states,
`session_router` finds the stream of each, `failure_detector` learns how long a pause is normal, `decisions`
says how long to wait for whom.
"""
