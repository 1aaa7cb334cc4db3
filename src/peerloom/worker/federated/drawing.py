"""Which clients train for a round, and when it may end: pure functions of what all workers know."""

import hashlib
from collections.abc import Mapping, Sequence

from peerloom.kit.federated_rounds import BELIEF, FederatedRounds

LEAST_PART = 0.1  # of the mean belief: who is trusted less still has a chance to earn more


def drawn(
    idle: Sequence[int], wanted: int, seed: int, step: int, attempt: int, weights: Mapping[int, float]
) -> list[int]:
    """So many of the `idle` clients, or all, by chances in proportion to their `weights` (all above 0).

    Whoever draws with the same numbers draws the same ones. The algorithm is A-Res of Efraimidis and Spirakis
    (Information Processing Letters 97, 2006): the largest u ** (1 / weight), of u uniform from 0 to 1.
    """
    keys = {client: _uniform(seed, step, attempt, client) ** (1 / weights[client]) for client in idle}
    return sorted(sorted(idle, key=lambda client: (-keys[client], client))[: max(0, wanted)])


def weights_of(
    clients: Sequence[int], beliefs: Mapping[int, float], rounds: FederatedRounds
) -> dict[int, float]:
    """The chance of each client to be drawn, in comparison with 1; who has no belief is a middling one."""
    known = [max(0.0, beliefs[client]) for client in clients if client in beliefs]
    mean = sum(known) / len(known) if known else 0.0
    if rounds.sampling != BELIEF or not mean:
        return dict.fromkeys(clients, 1.0)
    return {client: max(LEAST_PART, beliefs.get(client, mean) / mean) for client in clients}


def why_drawn(rounds: FederatedRounds, present: int, chosen: int, late: int, by_belief: bool) -> str:
    """In words how the clients of a round came about."""
    how = "by belief" if by_belief else "with equal chances"
    if rounds.sampling == BELIEF and not by_belief:
        how += ", as no belief is known"
    busy = f"; {late} still at work for an older version" if late else ""
    return (
        f"{chosen} of {present} clients, drawn {how}{busy}" if chosen < present else f"all {present} clients"
    )


def may_end(rounds: FederatedRounds, at_work: int, answered: int, late_answers: int) -> bool:
    """Whether a round ends: enough of those `at_work` for its version have answered, or only late ones could.

    `answered` are those of `at_work` who have; `late_answers` came of older versions, and count.
    """
    return answered >= rounds.needed(at_work) if at_work else late_answers > 0


def numbers_for(claims: Sequence[int], shards: int) -> list[int]:
    """A client's number for each rank, of what it claims: the number it has, or -1 for any that is free.

    A number that two claim stays with the lower rank. -1: that of another, or none is left.
    """
    numbers: list[int] = []
    for claim in claims:
        numbers.append(claim if claim >= 0 and claim not in numbers else -1)
    free = iter([number for number in range(shards) if number not in numbers])
    return [next(free, -1) if claim < 0 else number for claim, number in zip(claims, numbers, strict=True)]


def _uniform(seed: int, step: int, attempt: int, client: int) -> float:
    digest = hashlib.sha256(f"{seed}:{step}:{attempt}:{client}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 1)
