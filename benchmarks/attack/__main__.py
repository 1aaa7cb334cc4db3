"""`make attack`: runs all attacks; ends with 1 if one gained anything, or proved nothing."""

import argparse
import asyncio
import json
import sys
import tempfile
import textwrap
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.attack import denial, evidence, job_code, job_files, nodes, requests, strangers, users, work
from benchmarks.attack.aftermath import what_is_left, what_still_works
from benchmarks.attack.attacks import ATTACKS, Attack
from benchmarks.attack.outcomes import Verdict, come_to, verdict
from benchmarks.attack.system import System, running
from benchmarks.attack.targets import PACED
from benchmarks.chaos.system import Parts
from peerloom.kit.server_limits import raise_descriptor_limit

# Their functions list themselves when they are imported.
MODULES = (strangers, nodes, evidence, work, users, job_files, requests, job_code, denial)
_WIDTHS = (30, 8, 34, 50, 34)
_HEADS = ("attack", "by", "tried", "gained", "the same in a plain system")


def main() -> int:
    """Runs the attacks and prints the table; 0 if nothing was gained, and every attack proved something."""
    asked = _arguments()
    raise_descriptor_limit()
    parts = Parts()
    parts.mark()
    with tempfile.TemporaryDirectory(prefix="peerloom-attack-") as folder:
        verdicts = asyncio.run(attack_all(Path(folder), chosen(asked.only)))
        verdicts += [what_is_left(parts, Path(folder))]
    print(table(verdicts))
    if asked.json:
        Path(asked.json).write_text(json.dumps([asdict(one) for one in verdicts], indent=2) + "\n")
    bad = [one.attack for one in verdicts if not one.ok]
    print(f"{len(verdicts) - len(bad)} of {len(verdicts)} held" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


async def attack_all(folder: Path, attacks: list[Attack]) -> list[Verdict]:
    """A closed and a plain system side by side; each attack, and its control."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "paced.py").write_text(PACED)
    verdicts = list[Verdict]()
    async with AsyncExitStack() as systems:
        closed = await systems.enter_async_context(
            running(folder / "closed", is_closed=True, modules=modules)
        )
        plain = await systems.enter_async_context(running(folder / "plain", is_closed=False, modules=modules))
        for one in attacks:
            verdicts.append(await _judge(one, closed, plain))
            print(
                f"{one.by}: {one.name}: {verdicts[-1].gained} [{verdicts[-1].control}]",
                file=sys.stderr,
                flush=True,
            )
        verdicts.append(await what_still_works(closed))
    return verdicts


async def _judge(one: Attack, closed: System, plain: System) -> Verdict:
    outcome = await come_to(lambda: one.run(closed))
    control = one.no_control or await come_to(lambda: one.run(plain))
    return verdict((one.name, one.by, one.tried), outcome, control)


def table(verdicts: list[Verdict]) -> str:
    """All rows, each cell wrapped to its column."""
    lines = [_row(_HEADS), _row(tuple("-" * width for width in _WIDTHS))]
    lines += [_row((one.attack, one.by, one.tried, one.gained, one.control)) for one in verdicts]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    height = max(map(len, wrapped))
    filled = [column + [""] * (height - len(column)) for column in wrapped]
    rows = zip(*filled, strict=True)
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=True)).rstrip()
        for row in rows
    )


def chosen(words: list[str]) -> list[Attack]:
    """The attacks with one of the words in their attacker or name, all for none, in the modules' order."""
    places = {module.__name__: place for place, module in enumerate(MODULES)}
    ordered = sorted(ATTACKS, key=lambda one: places[one.run.__module__])
    return [one for one in ordered if not words or any(word in f"{one.by} {one.name}" for word in words)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--json", default="", help="write the table to this file too")
    parser.add_argument("--only", nargs="*", default=[], help="attacks whose attacker or name has this in it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
