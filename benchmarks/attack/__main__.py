"""`make attack`: runs all attacks; ends with 1 if one gained anything, or proved nothing."""

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.attack import (
    boasting,
    denial,
    evidence,
    job_code,
    job_files,
    nodes,
    relays,
    requests,
    strangers,
    users,
    work,
)
from benchmarks.attack.aftermath import what_is_left, what_still_works
from benchmarks.attack.attacks import ATTACKS, Attack
from benchmarks.attack.outcomes import Outcome, Verdict, come_to, verdict
from benchmarks.attack.system import System, running
from benchmarks.attack.table import table
from benchmarks.attack.targets import PACED
from benchmarks.chaos.system import Parts
from peerloom.kit.server_limits import raise_descriptor_limit

# Their functions list themselves when they are imported.
MODULES = (strangers, nodes, evidence, work, boasting, relays, users, job_files, requests, job_code, denial)
QUICK = (strangers.__name__, nodes.__name__, evidence.__name__, work.__name__, boasting.__name__)


def main() -> int:
    """Runs the attacks and prints the table; 0 if nothing was gained, and every attack proved something."""
    asked = _arguments()
    raise_descriptor_limit()
    parts = Parts()
    parts.mark()
    with tempfile.TemporaryDirectory(prefix="peerloom-attack-") as folder:
        attacks = [one for one in chosen(asked.only) if not asked.quick or one.run.__module__ in QUICK]
        verdicts = asyncio.run(attack_all(Path(folder), attacks, with_plain=not asked.quick))
        verdicts += [what_is_left(parts, Path(folder))]
    print(table(verdicts))
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(one) for one in verdicts], indent=2) + "\n")
    bad = [one.attack for one in verdicts if not one.ok]
    print(f"{len(verdicts) - len(bad)} of {len(verdicts)} held" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


async def attack_all(folder: Path, attacks: list[Attack], *, with_plain: bool) -> list[Verdict]:
    """Each attack on a closed system and, as its control, on a plain one beside it."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "paced.py").write_text(PACED)
    (modules / "boasting.py").write_text(boasting.BOASTING)
    verdicts = list[Verdict]()
    async with AsyncExitStack() as systems:
        enter = systems.enter_async_context
        closed = await enter(running(folder / "closed", is_closed=True, modules=modules))
        plain = running(folder / "plain", is_closed=False, modules=modules)
        control = await enter(plain) if with_plain else None
        for one in attacks:
            verdicts.append(await _judge(one, closed, control))
            print(f"{one.by}: {one.name}: {verdicts[-1].gained}", file=sys.stderr, flush=True)
        verdicts.append(await what_still_works(closed))
    return verdicts


async def _judge(one: Attack, closed: System, plain: System | None) -> Verdict:
    outcome = await come_to(lambda: one.run(closed))
    control: Outcome | Exception | str = one.no_control or "quick"
    if plain is not None and not one.no_control:
        control = await come_to(lambda: one.run(plain))
    return verdict((one.name, one.by, one.tried), outcome, control)


def chosen(words: list[str]) -> list[Attack]:
    """The attacks with one of the words in their attacker or name, all for none, in the modules' order."""
    places = {module.__name__: place for place, module in enumerate(MODULES)}
    ordered = sorted(ATTACKS, key=lambda one: places[one.run.__module__])
    return [one for one in ordered if not words or any(word in f"{one.by} {one.name}" for word in words)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--json", default="", help="write the table to this file too")
    parser.add_argument("--only", nargs="*", default=[], help="attacks whose attacker or name has this in it")
    parser.add_argument("--quick", action="store_true", help="strangers and nodes only, without controls")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
