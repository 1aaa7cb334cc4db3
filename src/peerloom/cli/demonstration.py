"""The demo: a whole system from its start to its end, told as it happens."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from peerloom import (
    Belief,
    Client,
    GenerationFormed,
    JobEvent,
    JobHandle,
    JobResult,
    NodeAnswer,
    NodeAnswered,
    StateChanged,
)
from peerloom.cli.belief_columns import TERM_COLUMNS
from peerloom.cli.events import describe
from peerloom.cli.exits import INTERRUPTED
from peerloom.cli.explain import in_brief
from peerloom.cli.output import print_fields, say, table_lines
from peerloom.cli.summary import ending_of, result_fields
from peerloom.cli.units import human_duration
from peerloom.cli.watching import live_bar
from peerloom.embedded import Embedded
from peerloom.errors import PeerloomError
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural

_EVIDENCE_LIMIT_S = 10.0
_POLL_S = 0.1
_INDENT = "  "


def demonstrate(slots: Sequence[int], requests: int, state: Path) -> str:
    """Runs the demo on a state folder; returns the job's last state. No process outlives it."""
    system, start_s = Embedded(state, slots), time.monotonic()
    lent = ", ".join(str(count) for count in slots)
    say(f"Starting registry, selector, trainer, and {plural(len(slots), 'node')} with {lent} slots ...")
    try:
        with system, Client(system.address) as client:
            took = human_duration(time.monotonic() - start_s)
            say(f"All is up after {took} at {system.address}; everything lies in {system.folder.path}")
            ending = _train(client, requests)
            say("\nStopping ...")
    except KeyboardInterrupt:
        say("\nStopped early; nothing is left running.", err=True)
        click.get_current_context().exit(INTERRUPTED)
    if ending == "failed":
        say(f"Logs that may say more: {system.folder.path / 'logs'}")
    say("Nothing is left running. Run the demo again: it begins with these beliefs.")
    return ending


def _train(client: Client, requests: int) -> str:
    before = _beliefs(client)
    _tell_beliefs_before(list(before.values()))
    job = client.train("digits", requests=requests, name="demo")
    try:
        _follow(job, requests, len(client.nodes(states=["alive"])))
        result = job.result()
    except BaseException:
        with suppress(PeerloomError):  # or the next system on this folder would take the job up again
            job.cancel()
        raise
    _tell_result(result)
    after = _beliefs_with_evidence(client, job, before) if result.succeeded else _beliefs(client)
    _tell_beliefs_after(before, list(after.values()))
    return result.state


def _beliefs(client: Client) -> dict[str, Belief]:
    return {belief.name: belief for belief in sorted(client.beliefs(), key=lambda belief: belief.name)}


def _tell_beliefs_before(beliefs: Sequence[Belief]) -> None:
    updates = sum(belief.updates for belief in beliefs)
    _head("Beliefs before")
    if not updates:
        _say("none yet: each node begins at 0")
        return
    _say(f"from earlier runs on this folder: {plural(updates, 'update')} so far")
    _table(beliefs, (_NODE, _BELIEF, *TERM_COLUMNS))


_NODE = Column("NODE", lambda belief: belief.name)
_BELIEF = Column("BELIEF", lambda belief: f"{belief.belief:.4f}", right=True)


def _follow(job: JobHandle, requests: int, nodes: int) -> None:
    """Tells who was asked, then shows the training until it ends."""
    events, answers, told = job.watch(), list[NodeAnswer](), False
    for event in events:
        if isinstance(event, NodeAnswered):
            answers.append(event.answer)
        asked_all = isinstance(event, StateChanged) and (event.state == "starting" or event.is_final)
        if asked_all and not told:
            _tell_answers(answers, requests, nodes)
            told = True
        if isinstance(event, GenerationFormed):
            _head(f"Training digits on {plural(len(event.workers), 'worker')} over {event.backend}")
            break
    with _teller() as tell:
        for event in events:
            tell(event)


def _tell_answers(answers: Sequence[NodeAnswer], requests: int, nodes: int) -> None:
    _head(
        f"Asked {len(answers)} of {plural(nodes, 'node')} for compute (budget: {plural(requests, 'request')})"
    )
    name_width = max((len(answer.name) for answer in answers), default=0)
    reasons = {answer.chosen_because for answer in answers}
    is_one_reason = len(answers) > 1 and len(reasons) == 1
    if is_one_reason:
        _say(f"each chosen: {reasons.pop()}")
    for answer in answers:
        gave = f"gave {answer.accepted_slots} of {plural(answer.slots, 'slot')}"
        _say(f"{answer.name.ljust(name_width)}  belief {answer.belief:.4f}, {gave}")
        if not is_one_reason:
            _say(f"{' ' * name_width}  chosen: {answer.chosen_because}")
        if answer.accepted_slots < answer.slots:
            _say(f"{' ' * name_width}  answer: {answer.reason}")


@contextmanager
def _teller() -> Iterator[Callable[[JobEvent], None]]:
    if sys.stderr.isatty():
        with live_bar() as tell:
            yield tell
    else:
        yield _tell_event


def _tell_event(event: JobEvent) -> None:
    if line := describe(event):
        _say(line)


def _tell_result(result: JobResult) -> None:
    _head("Result")
    if not result.succeeded:
        _say(ending_of(result))
        return
    hidden = ("fetch it",)  # it needs the system, which is about to stop
    print_fields([field for field in result_fields(result) if field[0] not in hidden], _INDENT)


def _beliefs_with_evidence(client: Client, job: JobHandle, before: Mapping[str, Belief]) -> dict[str, Belief]:
    """The beliefs once the evidence of this job has arrived: it is reported beside the job, not within it."""
    expected = {answer.name for answer in job.status().answers if answer.accepted}
    deadline_s = time.monotonic() + _EVIDENCE_LIMIT_S
    while True:
        beliefs = _beliefs(client)
        moved = {name for name, belief in beliefs.items() if belief.updates > _updates(before.get(name))}
        if expected <= moved or time.monotonic() > deadline_s:
            return beliefs
        time.sleep(_POLL_S)


def _updates(belief: Belief | None) -> int:
    return belief.updates if belief else 0


def _tell_beliefs_after(before: Mapping[str, Belief], after: Sequence[Belief]) -> None:
    def earlier(belief: Belief) -> str:
        return f"{before[belief.name].belief:.4f}" if belief.name in before else "0.0000"

    _head("Beliefs after")
    after_column = Column("AFTER", _BELIEF.text, right=True)
    _table(after, (_NODE, Column("BEFORE", earlier, right=True), after_column, *TERM_COLUMNS))
    weights = next((belief.terms.weights for belief in after if belief.terms), None)
    for line in in_brief(weights) if weights else []:
        _say(line)


def _head(text: str) -> None:
    say()
    say(click.style(text, bold=True))


def _say(text: str) -> None:
    say(_INDENT + text)


def _table(rows: Sequence[object], columns: Sequence[Column]) -> None:
    for line in table_lines(rows, columns, _INDENT):
        say(line)
