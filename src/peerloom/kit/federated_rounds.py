"""What `sync=federated,...` asks for: rounds in which clients train on data of their own. Pure functions.

A client is a worker with a shard of data that only it reads. FedAvg is that of McMahan et al. (AISTATS 2017),
FedProx of Li et al. (MLSys 2020), FedAdam of Reddi et al. (ICLR 2021).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.local_rounds import MAX_PERIOD, MAX_RATE, LocalRounds
from peerloom.kit.whole_numbers import as_whole

FEDERATED = "federated"
FED_AVG, FED_PROX, FED_ADAM = "fedavg", "fedprox", "fedadam"
REFUSE, BOUND, WEIGHTED = "refuse", "bound", "weighted"
EVEN, DIRICHLET, SIZE = "even", "dirichlet", "size"
BELIEF = "belief"
FEDERATED_CHOICES: dict[str, dict[str, str]] = {
    "algorithm": {
        FED_AVG: "the parameters become the clients' mean, weighted by samples",
        FED_PROX: "the same, and each client is drawn to where it began, by mu",
        FED_ADAM: "an outer Adam of this rate moves them by the clients' mean change",
    },
    "epochs": {"E": "a client passes E times over its shard"},
    "h": {"H": "a client makes H batches instead"},
    "mu": {"MU": "half of it times the squared way from the round's start joins fedprox's loss"},
    "rate": {"RATE": "that of fedadam"},
    "clients": {
        "FRACTION": "this part of the clients is drawn for a round, as 0.5; 1.0: all",
        "N": "so many of them are drawn, a whole number",
    },
    "quorum": {"PART": "a round ends when this part of those who were drawn have answered"},
    "sampling": {
        EVEN: "clients are drawn with equal chances",
        BELIEF: "those whose nodes are trusted more are drawn more often",
    },
    "stale": {
        REFUSE: "an update that began with an older version is refused",
        f"{BOUND}:S": "one that began at most S versions ago counts in full",
        WEIGHTED: "it counts less the older it is, and the less it goes the way of the others",
    },
    "split": {
        EVEN: "shards of one data set: of equal size, at random",
        f"{DIRICHLET}:ALPHA": "by labels; the smaller ALPHA, the fewer labels a shard has",
        f"{SIZE}:ALPHA": "of unequal size; the smaller ALPHA, the more unequal",
    },
    "shards": {"N": "so many shards; max_workers where it isn't given, or else the request budget"},
}
MAX_EPOCHS, MAX_CLIENTS, MAX_BOUND = 1000, 1 << 16, 1000
MAX_MU, MIN_ALPHA, MAX_ALPHA = 1000.0, 1e-3, 1e6
DEFAULT_MU, DEFAULT_RATE, DEFAULT_QUORUM = 0.01, 0.01, 0.9


@dataclass(frozen=True)
class FederatedRounds:
    """How clients are drawn, train and are merged.

    A client trains for `epochs` passes over its shard, or for `batches` where that isn't 0. `count` clients
    are drawn where that isn't 0, else `fraction` of those there. `bound` belongs to stale=bound, `alpha` to
    the splits that have one; `shards` is 0 while nobody has said how many.
    """

    algorithm: str = FED_AVG
    mu: float = 0.0
    rate: float = 1.0
    epochs: int = 1
    batches: int = 0
    fraction: float = 1.0
    count: int = 0
    quorum: float = DEFAULT_QUORUM
    sampling: str = EVEN
    stale: str = REFUSE
    bound: int = 0
    split: str = EVEN
    alpha: float = 0.0
    shards: int = 0

    def outer(self) -> LocalRounds:
        """What becomes of the clients' mean change."""
        return LocalRounds(max(1, self.batches), self.rate, adam=self.algorithm == FED_ADAM)

    def wanted(self, present: int) -> int:
        """How many of the clients that are there a round has; at least one."""
        return min(present, self.count) if self.count else max(1, math.ceil(self.fraction * present))

    def needed(self, drawn: int) -> int:
        """How many of the drawn have to answer before the round may end; at least one."""
        # Of ten, 0.9 are nine; its product with ten may be a little more.
        return max(1, math.ceil(self.quorum * drawn - 1e-9))

    def __str__(self) -> str:
        pairs = [FEDERATED, f"algorithm={self.algorithm}"]
        if self.algorithm == FED_PROX:
            pairs.append(f"mu={self.mu!r}")
        if self.algorithm == FED_ADAM:
            pairs.append(f"rate={self.rate!r}")
        pairs.append(f"h={self.batches}" if self.batches else f"epochs={self.epochs}")
        pairs.append(f"clients={self.count or self.fraction!r}")
        pairs.append(f"quorum={self.quorum!r},sampling={self.sampling}")
        pairs.append(f"stale={self.stale}:{self.bound}" if self.stale == BOUND else f"stale={self.stale}")
        pairs.append(f"split={self.split}" if self.split == EVEN else f"split={self.split}:{self.alpha!r}")
        return ",".join([*pairs, *([f"shards={self.shards}"] if self.shards else [])])


def is_federated(text: str) -> bool:
    """Whether a job's `sync` asks for federated rounds."""
    return text.partition(",")[0] == FEDERATED


def federated_of(field: str, text: str, given: Mapping[str, str]) -> FederatedRounds:
    """The rounds that the pairs `given` of a `text` ask for.

    Raises InvalidArgumentError with the limit that was passed.
    """
    pairs = _Pairs(field, text, given)
    algorithm, _ = pairs.word("algorithm", FED_AVG)
    for key, owner in (("mu", FED_PROX), ("rate", FED_ADAM)):
        if key in given and algorithm != owner:
            raise pairs.refused(f"without {key}, which belongs to algorithm={owner}")
    if "h" in given and "epochs" in given:
        raise pairs.refused("with epochs or h, not both: each says how long a client trains")
    fraction, count = _clients(pairs)
    stale, bound = pairs.word("stale", REFUSE)
    split, alpha = pairs.word("split", EVEN)
    return FederatedRounds(
        algorithm=algorithm,
        mu=pairs.number("mu", 0.0, MAX_MU, DEFAULT_MU) if algorithm == FED_PROX else 0.0,
        rate=pairs.number("rate", 0.0, MAX_RATE, DEFAULT_RATE) if algorithm == FED_ADAM else 1.0,
        epochs=pairs.whole("epochs", MAX_EPOCHS, 1),
        batches=pairs.whole("h", MAX_PERIOD, 0),
        fraction=fraction,
        count=count,
        quorum=pairs.number("quorum", 0.0, 1.0, DEFAULT_QUORUM),
        sampling=pairs.word("sampling", EVEN)[0],
        stale=stale,
        bound=pairs.whole_of(f"stale={BOUND}:S", bound, MAX_BOUND) if stale == BOUND else 0,
        split=split,
        alpha=pairs.number_of(f"split={split}:ALPHA", alpha, MIN_ALPHA, MAX_ALPHA) if split != EVEN else 0.0,
        shards=pairs.whole("shards", MAX_CLIENTS, 0),
    )


@dataclass(frozen=True)
class _Pairs:
    """The pairs of a text, with what is said where one is outside its limits."""

    field: str
    text: str
    given: Mapping[str, str]

    def refused(self, limit: str) -> InvalidArgumentError:
        return InvalidArgumentError.of_field(self.field, self.text, limit)

    def word(self, key: str, default: str) -> tuple[str, str]:
        """A key's word, and the number behind its colon, which is there where the word has one."""
        word, colon, number = self.given.get(key, default).partition(":")
        choices = FEDERATED_CHOICES[key]
        words = {choice.partition(":")[0]: ":" in choice for choice in choices}
        if word not in words or bool(colon and number) != words[word] or (colon and not number):
            near = nearest(word, tuple(words))
            hint = f", did you mean {near[0]}?" if near and near[0] != word else ""
            raise self.refused(f"of a {key} that is there ({', '.join(choices)}){hint}")
        return word, number

    def whole(self, key: str, most: int, default: int) -> int:
        form = f"{key}={next(iter(FEDERATED_CHOICES[key]))}"
        return self.whole_of(form, self.given[key], most) if key in self.given else default

    def whole_of(self, form: str, number: str, most: int) -> int:
        value = as_whole(number, len(str(most)))
        if not 1 <= value <= most:
            raise self.refused(f"{form} with a whole number from 1 to {most:,}")
        return value

    def number(self, key: str, above: float, most: float, default: float) -> float:
        if key not in self.given:
            return default
        value = _float(self.given[key])
        if not above < value <= most:
            raise self.refused(f"a {key} above {above:g} and at most {most:g}")
        return value

    def number_of(self, form: str, number: str, least: float, most: float) -> float:
        value = _float(number)
        if not least <= value <= most:
            raise self.refused(f"{form} with a number from {least:g} to {most:,.0f}")
        return value


def _clients(pairs: _Pairs) -> tuple[float, int]:
    """A fraction, or a count; the other is what it is by default."""
    value = pairs.given.get("clients", "1.0")
    if value.isascii() and value.isdecimal():
        return 1.0, pairs.whole_of("clients=N", value, MAX_CLIENTS)
    fraction = _float(value)
    if not 0 < fraction <= 1:
        limit = f"clients=FRACTION above 0.0 and up to 1.0, or clients=N from 1 to {MAX_CLIENTS:,}"
        raise pairs.refused(limit)
    return fraction, 0


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
