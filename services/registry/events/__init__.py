"""The registry's log: transitions of nodes, the queue that commits them, the feed that tells watchers."""
