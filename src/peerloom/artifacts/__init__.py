"""Files named by their SHA-256: what a process keeps, serves and fetches from peers.

store      what is kept on disk, within a limit; the least recently used goes first
retention  what the store must not drop: pinned artifacts, and those in use
disk       the store's files, and what a crash leaves of them
manifest   what an artifact consists of, chunk by chunk
transfer   one whole file over one call; `upload` is its receiving side
cache      a store that fetches what it lacks: each artifact once, however many ask
servicer   the API over store and cache; `service` puts all of them together
object_store      artifacts in a bucket or a shared folder; `upload_decisions` say what goes there next
backed_store      a store whose folder is the cache of an object store; `object_transfers` go on beside it
fetch      one artifact in chunks from several peers at once
bundles    folders as artifacts
"""
