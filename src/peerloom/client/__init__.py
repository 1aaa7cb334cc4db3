"""The SDK: one address in, typed values out.

`AsyncClient` is written once and knows all; `Client` runs it on a private loop thread, so it works in a
script, in a notebook and inside a running event loop alike. A job is a resource that lives in the trainer:
a handle can be dropped and taken up again, and a watch that breaks goes on from the last sequence number it
saw, so that no event is lost or told twice.

    address       which registry, and who says so
    services      typed calls of the services found through it; errors say what to start
    async_client  what can be asked, as coroutines; `client` is the same without async
    jobs          handles on one job; `job_events` are its events, over streams that break
    node_events   changes of nodes, likewise
    artifacts     artifacts on the nodes, found at their `holders`; models to files
    models        which model a user means
    requests      what a user wants, as messages; `conversions` are messages as values, the `types`
    signatures    a method's arguments, written once
    loop_thread   where the coroutines of the sync face run
"""
