"""What a job's `sync` asks for: how the gradients of each step become their sum on all ranks. Pure functions.

A schedule says when gradients travel, a topology which way, a codec as what; a period, how many batches each
rank trains on before; a staleness, how old their parameters may be; federated rounds, that each has data of
its own. BSP is the bulk-synchronous schedule,
WFBP the wait-free one of Poseidon (Zhang et al., USENIX ATC 2017). To merge is MG-WFBP's way (Shi, Chu, Li,
INFOCOM 2019), with a threshold that is given; to cut and to send the first layers first is that of
ByteScheduler (Peng et al., SOSP 2019), within a step.
"""

import math
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.federated_rounds import (
    FEDERATED,
    FEDERATED_CHOICES,
    FederatedRounds,
    federated_of,
    is_federated,
)
from peerloom.kit.local_rounds import OUTER_CHOICES, PERIOD_CHOICES, LocalRounds, rounds_of
from peerloom.kit.robust_rules import OFF
from peerloom.kit.stale_steps import (
    ASP,
    BACKUP_CHOICES,
    LATE_CHOICES,
    SSP,
    STALENESS_CHOICES,
    StaleSteps,
    expanded,
    stale_of,
)

BSP, WFBP, MERGED, CUT = "bsp", "wfbp", "merged", "cut"
RING, DIRECT, SERVERS = "ring", "direct", "ps"
NONE, FP16, BF16 = "none", "fp16", "bf16"
INT8, INT4, ONE_BIT, TOP_K = "int8", "int4", "1bit", "topk"
CHOICES: dict[str, dict[str, str]] = {
    "schedule": {
        WFBP: "each bucket of gradients leaves as soon as the backward pass has filled it",
        BSP: "all gradients leave after the backward pass",
        f"{MERGED}:BYTES": "gradients wait until so many bytes are ready, and leave together",
        f"{CUT}:BYTES": "gradients leave in pieces of at most so many bytes, those of the first layers first",
    },
    "topology": {
        RING: "the library's all-reduce",
        DIRECT: "each rank gets everybody's values for its part, adds them up, and gives the sum to all",
        SERVERS: "each bucket has one rank that gets everybody's, adds them up, and gives the sum to all",
        f"{SERVERS}:K": "the same, by the first K ranks alone, or by all where there are fewer",
    },
    "codec": {
        NONE: "as they are",
        FP16: "half precision; values over 65,504 become infinite",
        BF16: "half the bits, and the range of single precision",
        INT8: "8 bits a value and a scale a block, with error feedback",
        INT4: "4 bits a value and a scale a block, with error feedback",
        ONE_BIT: "signs and a scale a block, with error feedback",
        f"{TOP_K}:RATIO": "the largest values of each part, with error feedback",
    },
    "period": PERIOD_CHOICES,
    "outer": OUTER_CHOICES,
    "staleness": STALENESS_CHOICES,
    "late": LATE_CHOICES,
    "backup": BACKUP_CHOICES,
}
_WORDS = {
    key: tuple(dict.fromkeys(value.partition(":")[0] for value in values)) for key, values in CHOICES.items()
}
MOST_RATIO = 0.5  # beyond it the places cost more than the values save
LEAST_SIZE_BYTES, MOST_SIZE_BYTES = 1 << 10, 1 << 30  # less is header and trip, more is no cut
MOST_SERVERS = 1 << 16
KEY_BYTES = 1 << 20  # of a bucket that one server owns, where the schedule says no size: more would be uneven
MAX_SYNC_CHARACTERS = 192


@dataclass(frozen=True)
class SyncMethod:
    """One way to synchronise each step.

    `ratio` is the part of the values that topk sends, else 0; `size_bytes` the BYTES of merged and cut, else
    0; `servers` the K of ps, 0: all ranks. With `rounds` a step is a round of local ones, and what travels is
    what those have changed; with `federated`, which has `rounds` too, the clients' own data decide how many.
    With `stale` a step takes what gradients there are, also of older parameters.
    """

    schedule: str = WFBP
    topology: str = RING
    codec: str = NONE
    ratio: float = 0.0
    rounds: LocalRounds | None = None
    size_bytes: int = 0
    servers: int = 0
    federated: FederatedRounds | None = None
    stale: StaleSteps | None = None

    @property
    def is_exact(self) -> bool:
        """Nothing but the order of adding separates its steps from those of one process."""
        return self.codec == NONE and self.rounds is None and self.stale is None

    @property
    def batches(self) -> int:
        """Batches in a step, but for the last of an epoch; a federated round counts as one."""
        return self.rounds.period if self.rounds is not None and self.federated is None else 1

    @property
    def needs_mesh(self) -> bool:
        """Its messages go from worker to worker, not by a library's collective."""
        return self.topology != RING

    @property
    def has_feedback(self) -> bool:
        """What its codec leaves out in one step is added to the next one's gradients."""
        return self.codec in (INT8, INT4, ONE_BIT, TOP_K)

    def __str__(self) -> str:
        schedule = f"{self.schedule}:{self.size_bytes}" if self.size_bytes else self.schedule
        topology = f"{self.topology}:{self.servers}" if self.servers else self.topology
        codec = f"{self.codec}:{self.ratio!r}" if self.codec == TOP_K else self.codec
        if self.federated is not None:
            return f"{self.federated},topology={topology},codec={codec}"
        rounds = f",{self.rounds}" if self.rounds is not None else ""
        stale = f",{self.stale}" if self.stale is not None else ""
        return f"schedule={schedule},topology={topology},codec={codec}{rounds}{stale}"


PRESETS = {
    "wfbp-a2a": SyncMethod(),
    "bsp-a2a": SyncMethod(BSP),
    "wfbp-ps": SyncMethod(topology=SERVERS),
    "bsp-ps": SyncMethod(BSP, SERVERS),
    "mg-wfbp": SyncMethod(MERGED, size_bytes=1 << 20),
    "bytescheduler-ps": SyncMethod(CUT, SERVERS, size_bytes=1 << 19),
    "bytescheduler-a2a": SyncMethod(CUT, DIRECT, size_bytes=1 << 19),
    "local-sgd": SyncMethod(BSP, rounds=LocalRounds(16)),
    # In short trainings this did better than the 0.7 and 0.9 of DiLoCo's authors, who trained far longer.
    "diloco": SyncMethod(BSP, rounds=LocalRounds(32, rate=1.0, momentum=0.6)),
    ASP: SyncMethod(BSP, stale=StaleSteps(None)),
}


def parse_sync(field: str, text: str, robust: str = OFF, backend: str = "") -> SyncMethod:
    """The method that `text` names: a preset, or KEY=VALUE pairs between commas; empty: the default.

    `robust` as in `kit.robust_rules`, `backend` "nccl", "gloo" or anything else for an open choice. What
    isn't given is chosen so that it fits. Raises InvalidArgumentError, which says why a method can't work,
    and the nearest that can.
    """
    if len(text) > MAX_SYNC_CHARACTERS:
        raise InvalidArgumentError.of_field(
            field, text[:77] + "...", f"at most {MAX_SYNC_CHARACTERS} characters"
        )
    pairs = expanded(field, text)
    if text in PRESETS:
        method = PRESETS[text]
    elif is_federated(text):
        method = _federated(field, text)
    elif pairs and "=" not in pairs:
        limit = f"a preset ({', '.join((*PRESETS, f'{SSP}:S', FEDERATED))}) or KEY=VALUE pairs"
        word = text.partition(":")[0]
        meant = [f"{key}={text}" for key, words in _WORDS.items() if word in words]
        raise _refused(
            field, text, _hinted(limit, meant[0] if meant else word, (*PRESETS, FEDERATED, *meant))
        )
    else:
        method = _of_pairs(field, text, pairs, robust)
    _check(field, text, method, robust, backend)
    return method


def why_not_nccl(method: SyncMethod, robust: str = OFF) -> str:
    """Why a job can't use NCCL; empty when it can."""
    if method.needs_mesh and robust == OFF:
        return "messages from worker to worker go by way of the processor, beside gloo and never over NCCL"
    return ""


def _of_pairs(field: str, text: str, pairs: str, robust: str) -> SyncMethod:
    given = _given(field, text, pairs, tuple(CHOICES))
    codec, ratio = _codec(field, text, given.get("codec", NONE))
    rounds = rounds_of(field, text, given)
    stale = stale_of(field, text, given)
    given_schedule = given.get("schedule", WFBP if rounds is None and stale is None else BSP)
    schedule, size = _word(field, text, "schedule", given_schedule)
    size_bytes = 0
    if schedule in (MERGED, CUT):
        size_bytes = _number(field, text, f"{schedule}:BYTES", size, LEAST_SIZE_BYTES, MOST_SIZE_BYTES)
    needs_direct = codec in (INT8, INT4, ONE_BIT, TOP_K) or robust != OFF or schedule == CUT
    given_topology = given.get("topology", DIRECT if needs_direct else RING)
    topology, count = _word(field, text, "topology", given_topology)
    servers = _number(field, text, f"{SERVERS}:K", count, 1, MOST_SERVERS) if count else 0
    return SyncMethod(schedule, topology, codec, ratio, rounds, size_bytes, servers, stale=stale)


def _federated(field: str, text: str) -> SyncMethod:
    keys = (*FEDERATED_CHOICES, "topology", "codec")
    given = _given(field, text, text.partition(",")[2], keys)
    federated = federated_of(field, text, given)
    codec, ratio = _codec(field, text, given.get("codec", NONE))
    needs_direct = codec in (INT8, INT4, ONE_BIT, TOP_K)
    topology, count = _word(field, text, "topology", given.get("topology", DIRECT if needs_direct else RING))
    servers = _number(field, text, f"{SERVERS}:K", count, 1, MOST_SERVERS) if count else 0
    rounds = federated.outer()
    return SyncMethod(BSP, topology, codec, ratio, rounds, servers=servers, federated=federated)


def _given(field: str, text: str, pairs: str, keys: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs.split(",") if pairs else ():
        key, equals, value = pair.partition("=")
        if key not in keys or not equals:
            raise _refused(field, text, _hinted(f"KEY=VALUE pairs of {', '.join(keys)}", key, keys))
        if key in given:
            raise InvalidArgumentError.of_field(field, text, f"without a second {key}: one of them counts")
        given[key] = value
    return given


def _word(field: str, text: str, key: str, value: str) -> tuple[str, str]:
    """A key's word, and what is behind its colon: nothing where there is none, or none belongs."""
    name, colon, number = value.partition(":")
    numbered = any(choice.startswith(f"{name}:") for choice in CHOICES[key])
    if name not in _WORDS[key] or (colon and not (numbered and number)):
        limit = f"of a {key} that is there ({', '.join(CHOICES[key])})"
        raise _refused(field, text, _hinted(limit, name, _WORDS[key]))
    return name, number


def _number(field: str, text: str, form: str, number: str, least: int, most: int) -> int:
    value = int(number) if number.isascii() and number.isdecimal() and len(number) <= len(str(most)) else -1
    if not least <= value <= most:
        limit = f"{form} with a whole number from {least} to {most}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return value


def _codec(field: str, text: str, value: str) -> tuple[str, float]:
    name, number = _word(field, text, "codec", value)
    if name != TOP_K:
        return name, 0.0
    try:
        ratio = float(number)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= MOST_RATIO:
        limit = f"{TOP_K}:RATIO with a RATIO above 0 and at most {MOST_RATIO}, as in {TOP_K}:0.01"
        raise InvalidArgumentError.of_field(field, text, limit)
    return name, ratio


def _check(field: str, text: str, method: SyncMethod, robust: str, backend: str) -> None:
    if robust != OFF and method != SyncMethod(topology=DIRECT):
        fitting = SyncMethod(topology=DIRECT)
        needs = "each rank's values as they are, from each to each"
        if method.rounds is not None:
            needs = "gradients that others can compute again, and nobody else has a rank's local steps"
        if method.stale is not None:
            needs = "gradients that others can compute again, and nobody keeps the older parameters"
        raise _cannot(field, text, f"robust is {robust}, whose rule needs {needs}", fitting)
    if method.rounds is not None and method.schedule != BSP:
        why = f"a round's changes are whole only after its last batch, too late for {method.schedule}"
        raise _cannot(field, text, why, replace(method, schedule=BSP, size_bytes=0))
    if method.rounds is not None and method.stale is not None:
        why = (
            "rounds of local steps and steps of older gradients are two ways to wait less: one of them counts"
        )
        raise _cannot(field, text, why, replace(method, rounds=None))
    if method.stale is not None and method.schedule != BSP:
        why = (
            f"what a rank has computed is sent when a step's parts are there, too late for {method.schedule}"
        )
        raise _cannot(field, text, why, replace(method, schedule=BSP, size_bytes=0))
    if method.topology == RING and method.has_feedback:
        why = f"a ring adds up what arrives, and {method.codec} has to be decoded before it is added"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if method.topology == RING and method.schedule == CUT:
        why = "a library's all-reduces don't overtake each other, and pieces of the first layers have to"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if backend == "nccl" and (why := why_not_nccl(method, robust)):
        codec = BF16 if method.has_feedback else method.codec
        schedule = MERGED if method.schedule == CUT else method.schedule
        nearest_method = replace(method, schedule=schedule, topology=RING, codec=codec, ratio=0.0, servers=0)
        raise _cannot(field, text, why, nearest_method)


def _cannot(field: str, text: str, why: str, fitting: SyncMethod) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"another way, as {why}; the nearest is {fitting}")


def _hinted(limit: str, word: str, known: tuple[str, ...]) -> str:
    near = nearest(word, known)
    return f"{limit}{f', did you mean {near[0]}?' if near else ''}"


def _refused(field: str, text: str, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"{limit}; 'peerloom sync list' shows all")
