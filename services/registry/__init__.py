"""The registry: which nodes exist, and which of them live.

A node registers and gets a lease: the name of one session, its online period. It beats on a stream; a
beat touches memory only. Each life is judged by its silence, the time since its last beat:

    ALIVE --- silent for suspect_after_s, or its stream broke ---> SUSPECT
    SUSPECT - a beat with an incarnation above the suspected one -> ALIVE    (it refuted)
    SUSPECT - silent for dead_after_s --------------------------> DEAD      (an interruption)
    any ----- Deregister ----------------------------------------> LEFT
    any ----- Register with the same name and key ---------------> ALIVE    (a new session)

A beat with the old incarnation is a sign of life, so it puts death off, but it refutes nothing: it may
have been under way since before the suspicion. Its answer says SUSPECT, and the agent raises its
incarnation. So a node that a slow network made look dead can always speak for itself, and an old message
can't clear a node that is really gone.

The table in memory answers all questions about now; the database makes it durable. A change is decided
from the table under its node's lock, committed together with its event, and only then put into the
table, told to watchers and acknowledged. Changes of different nodes share a commit. Thus the database's
load follows the changes, not the beats.

When silence will be too long is kept in a heap with one entry a node, looked at again only when it
comes up; a node that beats costs nothing until then. Nobody can be silent before the registry listens:
after a start, and after a pause of the registry itself, all silences begin anew.

Which artifacts a node holds is kept in memory alone (`discovery.artifact_index`): the beats carry the number
of the node's newest change, so a node tells again what the registry doesn't know.

A node that asks is dialled back (`discovery.dialling_back`): one that can't be reached where it says is told
who passes connections on.

Rooms: `membership` decides and keeps who is a member, `events` commits and tells each change, `discovery`
knows where services and artifacts are, `answers` puts all of it into messages and pages.
"""
