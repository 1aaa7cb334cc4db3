"""The SDK: one address in, typed values out.

`AsyncClient` is written once and knows all; `Client` runs it on a private loop thread, so it works in a
script, in a notebook and inside a running event loop alike. A job is a resource that lives in the trainer:
a handle can be dropped and taken up again, and a watch that breaks goes on from the last sequence number it
saw, so that no event is lost or told twice.

    address       which registry, and who says so
    services      the other services found through it; errors say what to start
    async_client  what can be asked, as coroutines      client      the same without async
    async_job     a handle on one job, as coroutines    job         the same without async
    watching      events over broken streams            download    artifacts, verified
    requests      what a user wants, as messages        conversions messages as values
    loop_thread   where the coroutines of the sync face run
    types         the values
"""
