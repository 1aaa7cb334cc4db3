"""Hosts behind an emulated network: what the registry believes is what the network lets it see.

A file says what there is (`reading` checks it against `schema.json` and makes a `Plan` of it). Each host is a
network namespace or a container with one interface, whose cable ends in the lab, a namespace that holds every
bridge and tap (`lab`). Between the taps runs ns-3, or Linux's own shaping (`backends`). The control plane is
a host among them, so agents reach it through the network only; from outside it is asked through socket files
(`doorway`). Whatever is made is recorded first (`record`), so that it is removed even if nobody was left to
(`removal`).
"""

from peerloom.testbed.plan import Action, Plan
from peerloom.testbed.reading import load_plan, parse_plan
from peerloom.testbed.testbed import Testbed

__all__ = ["Action", "Plan", "Testbed", "load_plan", "parse_plan"]
