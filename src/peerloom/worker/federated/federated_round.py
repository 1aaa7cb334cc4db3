"""A federated round on one worker: who trains is drawn, they train and push, and all merge what counts.

A round ends when enough clients have answered. Who hasn't goes on beside the next ones, and pushes an older
version then. Nothing of a round counts before its end, which all workers make alike; a client's work stays
where the group breaks, and is pushed in the next generation.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from peerloom.errors import FailedPreconditionError
from peerloom.kit.federated_rounds import BELIEF
from peerloom.v1.trainer_pb2 import ClientPush, ClientTotals, FederatedRound
from peerloom.worker.federated.client_rows import IDLE, NOBODY, ClientRow, GroupRows, RowsUnderWay
from peerloom.worker.federated.drawing import drawn, may_end, numbers_for, weights_of, why_drawn
from peerloom.worker.federated.federation import Federation
from peerloom.worker.federated.versions import REFUSED, PushVerdict, Versions, judged, parts, pushed
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.sync import Synchroniser
from peerloom.worker.sync.local_steps import send_changes, trained
from peerloom.worker.training import Training

MOST_FAILURES = 3  # refused updates of a round's own version for each client that is there
BeginRows = Callable[[ClientRow], RowsUnderWay]


@dataclass(frozen=True)
class RoundMade:
    """The mean `loss` of the updates that count, the samples of each rank's among them, and what is told.

    `first_sample` is how many samples had counted before, `trained` how many this worker has trained on.
    """

    loss: float
    counts: list[int]
    first_sample: int
    trained: int
    told: FederatedRound


@dataclass
class _Course:
    """What has come of a round until now: the same on all workers, but for what this one has `trained`.

    `rows` are the newest, by rank. Of those that are done `answers` are the ones that count, and
    `refused_now` has the others.
    """

    step: int
    rows: list[ClientRow]
    attempt: int = 0
    drawn: set[int] = field(default_factory=set)
    reason: str = ""
    answers: dict[int, ClientRow] = field(default_factory=dict)
    refused_now: set[int] = field(default_factory=set)
    refused: list[tuple[int, ClientRow]] = field(default_factory=list)
    trained: int = 0

    def at_work(self) -> list[int]:
        """Ranks whose clients train for this round, or have answered, and weren't refused."""
        ranks = [rank for rank, row in enumerate(self.rows) if row.version == self.step]
        return [rank for rank in ranks if rank not in self.refused_now]

    def clients(self) -> dict[int, int]:
        """The rank of each client."""
        return {row.client: rank for rank, row in enumerate(self.rows) if row.client != NOBODY}


def make_federated_round(
    training: Training,
    federation: Federation,
    group: Group,
    sync: Synchroniser,
    step: int,
    begin_rows: BeginRows | None = None,
) -> RoundMade:
    """Makes the round that is the job's `step` (from 0), but for the outer optimiser's step.

    `begin_rows` is how rows are exchanged, by the group unless it is given. Raises GenerationBrokenError
    when the group broke or is to be left, what the synchroniser raises, and FailedPreconditionError where no
    client has data, or none comes to an update.
    """
    begin = begin_rows or (lambda row: GroupRows(group, row))
    if federation.generation != group.generation:
        claims = [row.client for row in begin(ClientRow(federation.claim)).result()]
        federation.take(numbers_for(claims, federation.shards)[group.rank])
        federation.generation = group.generation
    course = _Course(step, begin(federation.row()).result())
    try:
        # An older update that has come already isn't a round by itself: others are drawn beside it.
        while not (_is_over(course, federation, group.rank) and course.attempt):
            _draw(course, federation, training.seed, group)
            _train_on(course, federation, group, sync, begin)
    finally:
        if federation.work is not None:
            federation.work.leave_model()
    return _merge(course, training, federation, group, sync)


def _is_over(course: _Course, federation: Federation, own: int) -> bool:
    """Judges what has been answered; whether that is enough. Rank `own` drops what was refused."""
    versions, rounds = federation.kept.now, federation.rounds
    done = {rank: row for rank, row in enumerate(course.rows) if row.is_done}
    refused = {rank for rank, row in done.items() if judged(versions, row.push, rounds).word == REFUSED}
    course.refused_now = refused
    course.refused += [(rank, done[rank]) for rank in sorted(refused)]
    course.answers = {rank: row for rank, row in done.items() if rank not in refused}
    if own in refused:
        federation.drop()
    at_work = course.at_work()
    course.drawn.update(course.rows[rank].client for rank in at_work)
    fresh = sum(row.version == course.step for row in course.answers.values())
    return may_end(rounds, len(at_work), fresh, len(course.answers) - fresh)


def _draw(course: _Course, federation: Federation, seed: int, group: Group) -> None:
    """Draws who trains, at a round's beginning and where nobody is at work for it any more."""
    rounds, ranks, busy = federation.rounds, course.clients(), len(course.at_work())
    if course.attempt and busy:
        return
    present = sorted(ranks)
    _check_hope(course, len(present))
    idle = [
        client
        for client in present
        if ranks[client] in course.refused_now or course.rows[ranks[client]].version == IDLE
    ]
    if course.attempt and not idle:
        return
    beliefs = {client: group.beliefs[ranks[client]] for client in present} if group.beliefs else {}
    weights = weights_of(present, beliefs, rounds)
    chosen = drawn(idle, rounds.wanted(len(present)) - busy, seed, course.step, course.attempt, weights)
    late = len(present) - len(idle) - busy
    by_belief = rounds.sampling == BELIEF and any(belief > 0 for belief in beliefs.values())
    course.reason = why_drawn(rounds, len(present), len(chosen) + busy, late, by_belief)
    course.attempt += 1
    if any(ranks[client] == group.rank for client in chosen):
        federation.begin(course.step)


def _check_hope(course: _Course, present: int) -> None:
    if not present:
        raise FailedPreconditionError(
            "No worker of this federated job has data of its own: give each node a shard of its own.",
            reason="NO_CLIENT",
        )
    failed = [row for _, row in course.refused if row.version == course.step]
    if len(failed) >= MOST_FAILURES * present:
        raise FailedPreconditionError(
            f"Round {course.step + 1} has come to no update that counts: of the clients' {len(failed)} none "
            "is finite. Try a smaller learning rate.",
            reason="NO_UPDATE",
        )


def _train_on(
    course: _Course, federation: Federation, group: Group, sync: Synchroniser, begin: BeginRows
) -> None:
    """Trains, if there is anything to train, until all have told how far they are."""
    work = federation.work
    if work is not None and work.is_done:
        work.leave_model()  # whose newest parameters its update is compared with
    # Nobody leaves with an exchange under way, in which others would wait for it.
    under_way = begin(replace(federation.row(), leaves=group.leaves_after(course.step)))
    while work is not None and not work.is_done and not under_way.are_there():
        group.check()
        work.enter_model()
        course.trained += work.make_batch()
    begun_s = time.perf_counter()
    course.rows = under_way.result()
    sync.traffic.exposed_s += time.perf_counter() - begun_s
    group.check()
    if any(row.leaves for row in course.rows):
        raise GenerationBrokenError("a worker was asked to leave the group in this round")


def _merge(
    course: _Course, training: Training, federation: Federation, group: Group, sync: Synchroniser
) -> RoundMade:
    """Sums up what counts, and enters it."""
    work, before = federation.work, federation.kept.now
    told = [*course.refused, *course.answers.items()]
    after, verdicts = pushed(before, [row.push for _, row in told], federation.rounds)
    assert after.newest == course.step + 1, "a round that is over has an update that counts"
    each = parts(verdicts)
    part_of = {rank: part for (rank, _), part in zip(told, each, strict=True) if part}
    counts = [row.samples if rank in part_of else 0 for rank, row in enumerate(course.rows)]
    own = part_of.get(group.rank, 0.0)
    if own and work is not None:
        changes = [change.mul_(own) for change in work.change()]
    else:
        changes = [torch.zeros_like(parameter) for parameter in trained(training.state.model)]
    assert training.local_steps is not None, "federated rounds are rounds of local steps"
    own_loss = own * course.rows[group.rank].loss if own else 0.0
    loss = send_changes(training.local_steps.changed, changes, sync, own_loss, counts)
    group.check()
    federation.kept.now = after
    if own:
        federation.drop()
    told_round = _told(course, told, verdicts, each, after, group)
    return RoundMade(loss, counts, before.samples, course.trained, told_round)


def _told(
    course: _Course,
    told: Sequence[tuple[int, ClientRow]],
    verdicts: Sequence[PushVerdict],
    each: Sequence[float],
    after: Versions,
    group: Group,
) -> FederatedRound:
    made = FederatedRound(drawn=sorted(course.drawn), reason=course.reason)
    for (rank, row), verdict, part in zip(told, verdicts, each, strict=True):
        made.pushes.append(
            ClientPush(
                client=row.client,
                node_id=group.node_ids[rank],
                version=row.version,
                samples=row.samples,
                verdict=verdict.word,
                weight=part,
                reason=verdict.reason,
            )
        )
    for client, total in sorted(after.totals.items()):
        made.clients.append(
            ClientTotals(
                client=client,
                updates=total.updates,
                samples=total.samples,
                refused_updates=total.refused_updates,
                refused_samples=total.refused_samples,
            )
        )
    return made
