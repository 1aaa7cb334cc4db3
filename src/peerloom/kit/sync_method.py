"""What a job's `sync` asks for: how the gradients of each step become their sum on all ranks. Pure functions.

A schedule says when gradients travel, a topology which way, a codec as what. BSP is the bulk-synchronous
schedule, WFBP the wait-free one of Poseidon (Zhang et al., USENIX ATC 2017).
"""

import math
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.robust_rules import OFF

BSP, WFBP = "bsp", "wfbp"
RING, DIRECT = "ring", "direct"
NONE, FP16, BF16 = "none", "fp16", "bf16"
INT8, INT4, ONE_BIT, TOP_K = "int8", "int4", "1bit", "topk"
CHOICES: dict[str, dict[str, str]] = {
    "schedule": {
        WFBP: "each bucket of gradients leaves as soon as the backward pass has filled it",
        BSP: "all gradients leave after the backward pass",
    },
    "topology": {
        RING: "the library's all-reduce",
        DIRECT: "each rank gets everybody's values for its part, adds them up, and gives the sum to all",
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
}
_WORDS = {key: tuple(value.partition(":")[0] for value in values) for key, values in CHOICES.items()}
MOST_RATIO = 0.5  # beyond it the places cost more than the values save
MAX_SYNC_CHARACTERS = 128


@dataclass(frozen=True)
class SyncMethod:
    """One way to synchronise each step; `ratio` is the part of the values that topk sends, else 0."""

    schedule: str = WFBP
    topology: str = RING
    codec: str = NONE
    ratio: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Nothing but the order of adding separates its sum from that of one process."""
        return self.codec == NONE

    @property
    def has_feedback(self) -> bool:
        """What its codec leaves out in one step is added to the next one's gradients."""
        return self.codec in (INT8, INT4, ONE_BIT, TOP_K)

    def __str__(self) -> str:
        codec = f"{self.codec}:{self.ratio!r}" if self.codec == TOP_K else self.codec
        return f"schedule={self.schedule},topology={self.topology},codec={codec}"


PRESETS = {"wfbp-a2a": SyncMethod(), "bsp-a2a": SyncMethod(schedule=BSP)}


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
    if text in PRESETS:
        method = PRESETS[text]
    elif text and "=" not in text:
        limit = f"a preset ({', '.join(PRESETS)}) or KEY=VALUE pairs"
        word = text.partition(":")[0]
        meant = [f"{key}={text}" for key, words in _WORDS.items() if word in words]
        raise _refused(field, text, _hinted(limit, meant[0] if meant else text, (*PRESETS, *meant)))
    else:
        method = _of_pairs(field, text, robust)
    _check(field, text, method, robust, backend)
    return method


def why_not_nccl(method: SyncMethod, robust: str = OFF) -> str:
    """Why a job can't use NCCL; empty when it can."""
    if method.topology == DIRECT and robust == OFF:
        return "the direct exchange of gradients is made for gloo, and was never run over NCCL"
    return ""


def _of_pairs(field: str, text: str, robust: str) -> SyncMethod:
    given: dict[str, str] = {}
    for pair in text.split(",") if text else ():
        key, equals, value = pair.partition("=")
        if key not in CHOICES or not equals:
            raise _refused(
                field, text, _hinted(f"KEY=VALUE pairs of {', '.join(CHOICES)}", key, tuple(CHOICES))
            )
        if key in given:
            raise InvalidArgumentError.of_field(field, text, f"without a second {key}: one of them counts")
        given[key] = value
    codec, ratio = _codec(field, text, given.get("codec", NONE))
    needs_direct = codec in (INT8, INT4, ONE_BIT, TOP_K) or robust != OFF
    for key in ("schedule", "topology"):
        if key in given and given[key] not in CHOICES[key]:
            limit = f"of a {key} that is there ({', '.join(CHOICES[key])})"
            raise _refused(field, text, _hinted(limit, given[key], _WORDS[key]))
    topology = given.get("topology", DIRECT if needs_direct else RING)
    return SyncMethod(given.get("schedule", WFBP), topology, codec, ratio)


def _codec(field: str, text: str, value: str) -> tuple[str, float]:
    name, colon, number = value.partition(":")
    if name not in _WORDS["codec"] or (colon and name != TOP_K):
        limit = f"of a codec that is there ({', '.join(CHOICES['codec'])})"
        raise _refused(field, text, _hinted(limit, name, _WORDS["codec"]))
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
        why = f"robust is {robust}, whose rule needs each rank's values as they are, from each to each"
        raise _cannot(field, text, why, fitting)
    if method.topology == RING and method.has_feedback:
        why = f"a ring adds up what arrives, and {method.codec} has to be decoded before it is added"
        raise _cannot(field, text, why, replace(method, topology=DIRECT))
    if backend == "nccl" and (why := why_not_nccl(method, robust)):
        codec = BF16 if method.has_feedback else method.codec
        raise _cannot(field, text, why, SyncMethod(method.schedule, RING, codec))


def _cannot(field: str, text: str, why: str, fitting: SyncMethod) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"another way, as {why}; the nearest is {fitting}")


def _hinted(limit: str, word: str, known: tuple[str, ...]) -> str:
    near = nearest(word, known)
    return f"{limit}{f', did you mean {near[0]}?' if near else ''}"


def _refused(field: str, text: str, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError.of_field(field, text, f"{limit}; 'peerloom sync list' shows all")
