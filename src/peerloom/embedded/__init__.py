"""The whole system on one machine: every service and N node agents as processes on loopback.

One state folder holds everything, and one system at a time may use it (`folder`). What is started, and
with which arguments, is a pure plan (`plan`). Each process is a `Child`: it inherits the read end of a
pipe, its lifeline, whose only writer is the supervisor, so that even SIGKILL of the supervisor ends them
all. A child that dies is started again at its old address until `rules` says that it is hopeless. Beside
them may run the dashboard (`dashboard_process`).
"""

from peerloom.embedded.process_plan import DEFAULT_SLOTS
from peerloom.embedded.system import Embedded

__all__ = ["DEFAULT_SLOTS", "Embedded"]
