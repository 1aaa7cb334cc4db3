"""Federated rounds: clients train on data that only they read, and push updates with versions.

A version is a committed round, and every worker holds the newest: so a push is judged and written by all of
them alike, in one step (`versions`), and survives whoever dies. Who trains for a round is drawn by all alike
(`drawing`), from small rows that go round beside the training (`client_rows`). A client's work outlives the
rounds that end without it (`client_work`); its data are a shard (`shards`). `federated_round` puts this
together.
"""
