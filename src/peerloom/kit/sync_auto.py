"""A job's `sync` that leaves the choice to the trainer: `auto`, with what its sums may lose. Pure functions.

The trainer begins with what is good over most networks, and takes another method once the network, the codecs
and the layers are measured.
"""

from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_grammar import MAX_SYNC_CHARACTERS, parse_sync
from peerloom.kit.sync_method import DIRECT, MXFP4, PRESETS, RING, SyncMethod, why_not_nccl
from peerloom.kit.sync_model.sync_choice import EXACT, QUALITIES, candidates

AUTO = "auto"
FIRST_ROUNDS = replace(PRESETS["local-sgd"], topology=DIRECT, codec=MXFP4)
_QUALITY = "quality"
_NEEDS_GLOO = (
    "auto chooses among connections from worker to worker too, which go beside gloo and never over NCCL"
)


@dataclass(frozen=True)
class AutoSync:
    """Whatever is fastest by measurement, of those that lose no more than `quality` allows."""

    quality: str = EXACT

    def __str__(self) -> str:
        return f"{AUTO},{_QUALITY}={self.quality}"


def asked_sync(field: str, text: str, robust: str = OFF, backend: str = "") -> SyncMethod | AutoSync:
    """What `text` asks for: a method as in `parse_sync`, or `auto` with perhaps a `quality`.

    Raises InvalidArgumentError, which says why it can't work, and the nearest that can.
    """
    if not is_auto(text) or len(text) > MAX_SYNC_CHARACTERS:
        return parse_sync(field, text, robust, backend)
    return AutoSync(_checked(field, text, robust, backend))


def is_auto(text: str) -> bool:
    """Whether the trainer chooses."""
    return text.partition(",")[0] == AUTO


def first_method(text: str, robust: str = OFF, bears_rounds: bool = False) -> SyncMethod:
    """How a job's first steps are synchronised, by its checked `sync`.

    Until a better way is known: by the plain all-reduce, or where the quality allows rounds of local steps,
    and the task `bears_rounds`, by these, for which no network is too slow.
    """
    asked = asked_sync("spec.sync", text, robust)
    if not isinstance(asked, AutoSync):
        return asked
    return FIRST_ROUNDS if bears_rounds and FIRST_ROUNDS in candidates(asked.quality) else SyncMethod()


def why_gloo(text: str, robust: str = OFF) -> str:
    """Why a job with this checked `sync` can't use NCCL; empty when it can."""
    return _NEEDS_GLOO if is_auto(text) else why_not_nccl(parse_sync("spec.sync", text, robust), robust)


def _checked(field: str, text: str, robust: str, backend: str) -> str:
    quality = EXACT
    for number, pair in enumerate(text.split(",")[1:]):
        key, _, value = pair.partition("=")
        if key != _QUALITY or number:
            near = nearest(key, (_QUALITY,))
            hint = f", did you mean {near[0]}?" if near and key != _QUALITY else ""
            limit = (
                f"{AUTO} or {AUTO},{_QUALITY}={'|'.join(QUALITIES)}, which chooses all else by itself{hint}"
            )
            raise InvalidArgumentError.of_field(field, text, limit)
        try:
            candidates(quality := value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{field} is {text!r}: {error.message}") from error
    if robust != OFF:
        raise _cannot(field, text, f"robust is {robust}, which has an exchange of its own", DIRECT)
    if backend == "nccl":
        raise _cannot(field, text, _NEEDS_GLOO, RING)
    return quality


def _cannot(field: str, text: str, why: str, topology: str) -> InvalidArgumentError:
    fitting = SyncMethod(topology=topology)
    return InvalidArgumentError.of_field(
        field, text, f"a method of your own, as {why}; the nearest is {fitting}"
    )
