"""What a job is and what drives it.

`supervisor` owns all jobs' tasks, `runner` is one job's life, `record` the only writer of what is known of
it, `event_log` and `commit_queue` make that durable, `event_pruning` forgets old events,
`job_queries` finds jobs by indices, `job_tally` counts what all jobs did, `sample_ledger`
proves that each sample was used once, `stale_entries` likewise where they count in any order,
`federated_entries` that each update counted once, with what all have in common in `ledger_entries`,
`specs` says what a job may ask for.
"""
