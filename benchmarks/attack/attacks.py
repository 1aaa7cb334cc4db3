"""The list of all attacks, in the order in which their modules are imported."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.attack.outcomes import By, Outcome
from benchmarks.attack.system import System

Run = Callable[[System], Awaitable[Outcome]]


@dataclass(frozen=True)
class Attack:
    """`tried` is what is done, in a few words; `no_control` says why a plain system isn't attacked too."""

    name: str
    by: By
    tried: str
    run: Run
    no_control: str = ""


ATTACKS: list[Attack] = []


def attack(by: By, tried: str, no_control: str = "") -> Callable[[Run], Run]:
    """Lists an attack under its function's name; the docstring says what the attacker hopes for."""

    def listed(run: Run) -> Run:
        ATTACKS.append(Attack(run.__name__.replace("_", " "), by, tried, run, no_control))
        return run

    return listed
