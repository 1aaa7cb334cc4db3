"""A window on the network and its jobs: a process of its own that asks as any client does.

network_page  what is known of the nodes: the registry's events and lists in, a page out
job_page      a job's events and snapshots in, a page out; `client.curves` keep a long job's figures in bounds
job_facts     what of that the snapshot tells
listings      jobs, models, artifacts and beliefs as pages show them
availability  which services answer, and since when one doesn't
board         the pages as texts; those who look wait there for the next change
following     asks and watches, once for all who look: fills pages and pins them to the board
close_ups     the same for one thing that somebody looks at
terminal_rows what a terminal shows of the pages, in its width; `terminal_window` shows it, and takes keys
terminal_snapshot the same as plain text
window        the web server: the pages' files, and one stream of events for each browser
own_names     refuses requests by other names than the dashboard's own
posted        what a page of ours may send, and how a refusal is answered
questions     a model is asked
permitted_actions  a node is drained, a job cancelled: for those who have the token
log_tails     the ends of what a job's workers printed, for them too
static        what runs in the browser
"""
