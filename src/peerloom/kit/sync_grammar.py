"""What a job's `sync` may say, and the method that it asks for. Pure functions."""

from collections.abc import Mapping
from dataclasses import replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.averaged_parts import PARTIAL, PARTIAL_CHOICES
from peerloom.kit.codec_choices import (
    CODEC_FROM,
    FROM_CHOICES,
    POWER_SGD,
    RANK_CHOICES,
    codec_from_of,
    low_rank_of,
    ratio_of,
)
from peerloom.kit.federated_rounds import FEDERATED, FEDERATED_CHOICES, federated_of, is_federated
from peerloom.kit.local_rounds import DELAY_CHOICES, OUTER_CHOICES, PERIOD_CHOICES, LocalRounds, rounds_of
from peerloom.kit.rank_groups import GROUPS_CHOICES
from peerloom.kit.robust_rules import OFF
from peerloom.kit.stale_steps import BACKUP_CHOICES, LATE_CHOICES, SSP, STALENESS_CHOICES, expanded, stale_of
from peerloom.kit.sync_method import (
    BF16,
    BSP,
    CUT,
    DIRECT,
    DOUBLING,
    FP16,
    INT4,
    INT8,
    MERGED,
    MXFP4,
    NONE,
    ONE_BIT,
    PRESETS,
    RING,
    TOP_K,
    TWO_BIT,
    WFBP,
    SyncMethod,
    why_not_nccl,
)
from peerloom.kit.topology_choices import TOPOLOGY_CHOICES, placed
from peerloom.kit.whole_numbers import whole_number

CHOICES: dict[str, dict[str, str]] = {
    "schedule": {
        WFBP: "each bucket of gradients leaves as soon as the backward pass has filled it",
        BSP: "all gradients leave after the backward pass",
        f"{MERGED}:BYTES": "gradients wait until so many bytes are ready, and leave together",
        f"{CUT}:BYTES": "pieces of so many bytes leave, the first layers' first; a layer waits for its own",
    },
    "topology": TOPOLOGY_CHOICES,
    "codec": {
        NONE: "as they are",
        FP16: "half precision; values over 65,504 become infinite",
        BF16: "half the bits, and the range of single precision",
        INT8: "8 bits a value and a scale a block, with error feedback",
        INT4: "4 bits a value and a scale a block, with error feedback",
        MXFP4: "4-bit floats and a scale for each 32, with error feedback",
        TWO_BIT: "signs times one of two sizes for each 128, with error feedback",
        ONE_BIT: "signs and a scale a block, with error feedback",
        f"{TOP_K}:RATIO": "the largest values of each part, with error feedback",
        **RANK_CHOICES,
    },
    CODEC_FROM: FROM_CHOICES,
    "period": PERIOD_CHOICES,
    "outer": OUTER_CHOICES,
    "delay": DELAY_CHOICES,
    "groups": GROUPS_CHOICES,
    PARTIAL: PARTIAL_CHOICES,
    "staleness": STALENESS_CHOICES,
    "late": LATE_CHOICES,
    "backup": BACKUP_CHOICES,
}
_WORDS = {
    key: tuple(dict.fromkeys(value.partition(":")[0] for value in values)) for key, values in CHOICES.items()
}
LEAST_SIZE_BYTES, MOST_SIZE_BYTES = 1 << 10, 1 << 30  # less is header and trip, more is no cut
MAX_SYNC_CHARACTERS = 1024


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


def _of_pairs(field: str, text: str, pairs: str, robust: str) -> SyncMethod:
    given = _given(field, text, pairs, tuple(CHOICES))
    coded = _coded(field, text, given)
    rounds = rounds_of(field, text, given)
    stale = stale_of(field, text, given)
    given_schedule = given.get("schedule", WFBP if rounds is None and stale is None else BSP)
    schedule, size = _word(field, text, "schedule", given_schedule)
    size_bytes = 0
    if schedule in (MERGED, CUT):
        size_bytes = whole_number(field, text, f"{schedule}:BYTES", size, LEAST_SIZE_BYTES, MOST_SIZE_BYTES)
    needs_direct = (
        coded.is_decoded or robust != OFF or schedule == CUT or "groups" in given or PARTIAL in given
    )
    given_topology = given.get("topology", DIRECT if needs_direct else RING)
    where = placed(field, text, coded, *_word(field, text, "topology", given_topology))
    return replace(where, schedule=schedule, size_bytes=size_bytes, rounds=rounds, stale=stale)


def _federated(field: str, text: str) -> SyncMethod:
    keys = (*FEDERATED_CHOICES, "topology", "codec", CODEC_FROM)
    given = _given(field, text, text.partition(",")[2], keys)
    federated = federated_of(field, text, given)
    coded = _coded(field, text, given)
    given_topology = given.get("topology", DIRECT if coded.is_decoded else RING)
    where = placed(field, text, coded, *_word(field, text, "topology", given_topology))
    return replace(where, schedule=BSP, rounds=federated.outer(), federated=federated)


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


def _coded(field: str, text: str, given: Mapping[str, str]) -> SyncMethod:
    """The plain method, with the codec that is asked for."""
    codec, number = _word(field, text, "codec", given.get("codec", NONE))
    return SyncMethod(
        codec=codec,
        ratio=ratio_of(field, text, number) if codec == TOP_K else 0.0,
        low_rank=low_rank_of(field, text, number) if codec == POWER_SGD else 0,
        codec_from=codec_from_of(field, text, given, has_codec=codec != NONE),
    )


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
    if method.topology == RING and method.is_decoded:
        why = f"a ring adds up what arrives, and {method.codec} has to be decoded before it is added"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if method.topology == DOUBLING and method.is_decoded:
        why = f"all pass on sums, and what {method.codec} leaves out of a sum is no rank's to keep"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if method.topology == RING and method.schedule == CUT:
        why = "a library's all-reduces don't overtake each other, and pieces of the first layers have to"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if method.topology == RING and method.groups is not None:
        why = "a library's all-reduce has all ranks, and groups of them average by messages of their own"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if method.partial is not None:
        _check_partial(field, text, method)
    if backend == "nccl" and (why := why_not_nccl(method, robust)):
        codec = BF16 if method.is_decoded else method.codec
        schedule = MERGED if method.schedule == CUT else method.schedule
        nearest_method = replace(method, schedule=schedule, topology=RING, codec=codec, ratio=0.0)
        rounds = replace(method.rounds, groups=None, partial=None) if method.rounds is not None else None
        nearest_method = replace(nearest_method, servers=0, server_nodes=(), sites=(), rounds=rounds)
        raise _cannot(field, text, why, nearest_method)


def _check_partial(field: str, text: str, method: SyncMethod) -> None:
    rounds = method.rounds
    assert rounds is not None, "it is of rounds"
    if method.topology == RING:
        why = "parts of the values are averaged by messages from each to each"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if rounds.groups is not None:
        why = "groups and parts are two ways to average within a round: one of them counts"
        raise _cannot(field, text, why, replace(method, rounds=replace(rounds, groups=None)))
    if rounds.delay or not rounds.averages:
        why = "parts become the ranks' mean at once, and at a round's end all else has to as well"
        plain = LocalRounds(rounds.period, partial=rounds.partial)
        raise _cannot(field, text, why, replace(method, rounds=plain))
    if method.codec == POWER_SGD or method.codec_from:
        why = "what is averaged within a round isn't by whole parameters"
        raise _cannot(field, text, why, method.without_codec())


def _cannot(field: str, text: str, why: str, fitting: SyncMethod) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"another way, as {why}; the nearest is {fitting}")


def _hinted(limit: str, word: str, known: tuple[str, ...]) -> str:
    near = nearest(word, known)
    return f"{limit}{f', did you mean {near[0]}?' if near else ''}"


def _refused(field: str, text: str, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"{limit}; 'peerloom sync list' shows all")
