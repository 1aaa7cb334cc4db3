"""How a model spreads over a job's workers: `data`, `pipeline=K`, `tensor=K` or `sharded=K`. Pure.

Or a job leaves it to the trainer, `auto`, which takes one of these by what the workers tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.plan_model.pipeline_order import ONE_F_ONE_B, PIPELINE_ORDERS
from peerloom.kit.stage_ranks import StageRanks
from peerloom.kit.sync_method import BF16, INT8, NONE
from peerloom.kit.whole_numbers import as_whole

DATA, PIPELINE, TENSOR, SHARDED, WIDTHS, MICRO_BATCHES, ORDER, ACTIVATIONS, SHADOW = (
    "data",
    "pipeline",
    "tensor",
    "sharded",
    "widths",
    "micro_batches",
    "order",
    "activations",
    "shadow",
)
AUTO, _SLASH = "auto", "/"
_KEYS = (PIPELINE, TENSOR, SHARDED, WIDTHS, MICRO_BATCHES, ORDER, ACTIVATIONS, SHADOW)
_KEYS_OF_SHARDED = (SHARDED, SHADOW)
_KEYS_BETWEEN_STAGES = (ORDER, ACTIVATIONS)
ON, OFF = "on", "off"
ACTIVATION_CODECS = (NONE, BF16, INT8)
# There are as many workers at most as stages may be.
MAX_STAGES, MAX_LAYERS, MAX_MICRO_BATCHES, MAX_PLAN_CHARACTERS = 64, 1_000_000, 4096, 512
# With M micro-batches each of K stages idles for (K - 1) / (M + K - 1) of a step: a fifth with four a stage.
MICRO_BATCHES_A_WORKER = 4


@dataclass(frozen=True)
class ParallelPlan:
    """`stages` of consecutive layers, on a worker each; 1: each worker has to do with all layers.

    With `pieces` above 1 each layer of a stage is cut in so many, which as many workers compute together.

    `starts` are the layers, from 0, at which all but the first stage begin; empty: chosen by cost. A batch is
    computed in `micro_batches` parts, as equal as whole samples allow, in an `order` of PIPELINE_ORDERS;
    `activations` is the codec of what goes from stage to stage, and of its gradients, one of
    ACTIVATION_CODECS. With `shadow` each stage's state is kept by another worker too. `widths` are the
    stages' workers, who take turns at the micro-batches; empty: one each. Where it `is_sharded` a stage is
    what a worker holds, and each worker computes a part of the batch with all layers, whose values it gets
    while it needs them.
    """

    stages: int = 1
    starts: tuple[int, ...] = ()
    micro_batches: int = 1
    order: str = ONE_F_ONE_B
    activations: str = NONE
    shadow: bool = True
    widths: tuple[int, ...] = ()
    is_sharded: bool = False
    pieces: int = 1

    @property
    def parts(self) -> int:
        """Of the model's state: what one worker holds, or several the same."""
        return self.stages * self.pieces

    @property
    def ranks(self) -> StageRanks:
        """Who of a pipeline's workers has which part."""
        return StageRanks(self.widths or (1,) * self.parts, self.pieces)

    @property
    def is_divided(self) -> bool:
        """Whether workers hold parts of the model."""
        return self.parts > 1

    @property
    def kind(self) -> str:
        """The word for how the model is spread."""
        if self.stages > 1:
            return SHARDED if self.is_sharded else PIPELINE
        return TENSOR if self.is_divided else DATA

    def computes(self, rank: int, micro_batch: int) -> bool:
        """Whether a rank has to do with a micro-batch; the workers of shards take turns at them."""
        if self.is_sharded:
            return micro_batch % self.stages == rank
        return self.ranks.has_turn(rank, micro_batch)

    def losers(self) -> Sequence[int]:
        """The ranks whose losses count, each of its own micro-batches."""
        return range(self.stages) if self.is_sharded else self.ranks.of_stage(self.parts - self.pieces)

    def __str__(self) -> str:
        if not self.is_divided:
            return DATA
        how = ":".join(map(str, self.starts)) if self.starts else str(self.stages)
        # One start alone would read as a number of stages.
        colon = ":" if len(self.starts) == 1 else ""
        if self.is_sharded:
            return f"{SHARDED}={how}{colon}" + ("" if self.shadow else f",{SHADOW}={OFF}")
        widths = f",{WIDTHS}={_SLASH.join(map(str, self.widths))}" if self.widths else ""
        order = f",{ORDER}={self.order}" if self.order != ONE_F_ONE_B else ""
        activations = f",{ACTIVATIONS}={self.activations}" if self.activations != NONE else ""
        shadow = "" if self.shadow else f",{SHADOW}={OFF}"
        more = f"{MICRO_BATCHES}={self.micro_batches}{order}{activations}{shadow}"
        pieces = f"{TENSOR}={self.pieces}"
        if self.stages == 1:
            return f"{pieces},{more}"
        return f"{PIPELINE}={how}{colon}{widths}" + (f",{pieces}" if self.pieces > 1 else "") + f",{more}"


def parse_plan(field: str, text: str) -> ParallelPlan:
    """The plan that `text` names: "", "data", or "pipeline=K" or "pipeline=S:S:…" and more of its pairs.

    These are "tensor=K", "widths=2/1", "micro_batches=M", "order=gpipe", "activations=int8" and "shadow=off".
    "pipeline=5:" begins the second of two stages at layer 5. "sharded=" takes the same numbers, and "shadow";
    "tensor=K" alone "micro_batches" and "shadow".
    Raises InvalidArgumentError with the limit that was passed, or the nearest word.
    """
    if len(text) > MAX_PLAN_CHARACTERS:
        limit = f"at most {MAX_PLAN_CHARACTERS} characters"
        raise InvalidArgumentError.of_field(field, text[:77] + "...", limit)
    if text in ("", DATA):
        return ParallelPlan()
    given: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if key not in _KEYS or not equals or key in given:
            hint = _hint(key, (DATA, AUTO, *_KEYS))
            more = f"{', '.join(_KEYS[3:-1])} or {_KEYS[-1]}"
            kinds = f"{DATA}, {AUTO}, {SHARDED}=K, {TENSOR}=K, or {PIPELINE}=K"
            limit = f"{kinds} and perhaps {more}, with a value, each once{hint}"
            raise InvalidArgumentError.of_field(field, text, limit)
        given[key] = value
    if SHARDED in given:
        return _sharded(field, text, given)
    if PIPELINE not in given and TENSOR not in given:
        limit = f"{PIPELINE}=K, {TENSOR}=K or {SHARDED}=K too: {', '.join(given)} would say how it runs"
        raise InvalidArgumentError.of_field(field, text, limit)
    pieces = _pieces(field, text, given)
    stages, starts = _stages(field, text, PIPELINE, given) if PIPELINE in given else (1, ())
    if stages * pieces > MAX_STAGES:
        limit = f"at most {MAX_STAGES} workers in all stages, not {stages * pieces}"
        raise InvalidArgumentError.of_field(field, text, limit)
    widths = _widths(field, text, given[WIDTHS], stages) if WIDTHS in given else ()
    # Within layers all compute at once: there is nothing to fill with more micro-batches.
    usual = str(MICRO_BATCHES_A_WORKER * (sum(widths) or stages) if stages > 1 else 1)
    number = given.get(MICRO_BATCHES, usual)
    micro_batches = _number(field, text, MICRO_BATCHES, number, 1, MAX_MICRO_BATCHES)
    if widths and max(widths) > micro_batches:
        limit = (
            f"at least {max(widths)} {MICRO_BATCHES}: the workers of a stage take turns at them, and with "
            f"{micro_batches} some of {max(widths)} would have nothing to compute"
        )
        raise InvalidArgumentError.of_field(field, text, limit)
    return ParallelPlan(
        stages,
        starts,
        micro_batches,
        _word(field, text, ORDER, given.get(ORDER, ONE_F_ONE_B), tuple(PIPELINE_ORDERS)),
        _word(field, text, ACTIVATIONS, given.get(ACTIVATIONS, NONE), ACTIVATION_CODECS),
        _word(field, text, SHADOW, given.get(SHADOW, ON), (ON, OFF)) == ON,
        widths,
        pieces=pieces,
    )


def _pieces(field: str, text: str, given: Mapping[str, str]) -> int:
    if TENSOR not in given:
        return 1
    if WIDTHS in given:
        limit = f"without {WIDTHS}: the workers of a stage have a piece of its layers each, and take no turns"
        raise InvalidArgumentError.of_field(field, text, limit)
    between = [key for key in _KEYS_BETWEEN_STAGES if key in given]
    if PIPELINE not in given and between:
        limit = f"without {between[0]}, or {PIPELINE}=K too: within layers there are no stages to go through"
        raise InvalidArgumentError.of_field(field, text, limit)
    return _number(field, text, TENSOR, given[TENSOR], 2, MAX_STAGES)


def _sharded(field: str, text: str, given: Mapping[str, str]) -> ParallelPlan:
    if others := [key for key in given if key not in _KEYS_OF_SHARDED]:
        limit = f"without {others[0]}: the workers of shards compute one part of the batch each"
        raise InvalidArgumentError.of_field(field, text, limit)
    stages, starts = _stages(field, text, SHARDED, given)
    shadow = _word(field, text, SHADOW, given.get(SHADOW, ON), (ON, OFF)) == ON
    return ParallelPlan(stages, starts, stages, shadow=shadow, is_sharded=True)


def is_auto_plan(text: str) -> bool:
    """Whether a job leaves its plan to the trainer."""
    return text == AUTO


def asked_plan(field: str, text: str) -> str:
    """A job's plan with all pairs, or "auto". Raises as `parse_plan`."""
    return text if is_auto_plan(text) else str(parse_plan(field, text))


def micro_batch_sizes(samples: int, micro_batches: int, least: int = 1) -> list[int]:
    """How a batch of `samples` is divided: so many parts, or as many as have `least` samples or more each.

    The first ones have one sample more where it doesn't go evenly.
    """
    parts = max(1, min(micro_batches, samples // least))
    size, more = divmod(samples, parts)
    return [size + (part < more) for part in range(parts)]


def _stages(field: str, text: str, key: str, given: Mapping[str, str]) -> tuple[int, tuple[int, ...]]:
    """How many, and where all but the first begin, if that is told."""
    starts = _starts(field, text, given[key]) if ":" in given[key] else ()
    return (len(starts) + 1 if starts else _number(field, text, key, given[key], 2, MAX_STAGES)), starts


def _starts(field: str, text: str, value: str) -> tuple[int, ...]:
    words = value.removesuffix(":").split(":")
    starts = tuple(_number(field, text, "a stage's first layer", word, 1, MAX_LAYERS) for word in words)
    if len(starts) >= MAX_STAGES or any(first >= second for first, second in pairwise(starts)):
        limit = f"at most {MAX_STAGES - 1} layers in growing order, as in {PIPELINE}=3:7:12"
        raise InvalidArgumentError.of_field(field, text, limit)
    return starts


def _widths(field: str, text: str, value: str, stages: int) -> tuple[int, ...]:
    words = value.split(_SLASH)
    widths = tuple(_number(field, text, "a stage's workers", word, 1, MAX_STAGES) for word in words)
    if len(widths) != stages:
        example = _SLASH.join(["2", *["1"] * (stages - 1)])
        limit = f"a width for each of the {stages} stages, as in {WIDTHS}={example}, not {len(widths)}"
        raise InvalidArgumentError.of_field(field, text, limit)
    if sum(widths) > MAX_STAGES:
        limit = f"at most {MAX_STAGES} workers in all stages, not {sum(widths)}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return widths if max(widths) > 1 else ()


def _word(field: str, text: str, what: str, word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        limit = f"{what} as one of {', '.join(known)}{_hint(word, known)}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return word


def _hint(word: str, known: tuple[str, ...]) -> str:
    near = nearest(word, known)
    return f", did you mean {near[0]}?" if near else ""


def _number(field: str, text: str, what: str, number: str, least: int, most: int) -> int:
    value = as_whole(number)
    if not least <= value <= most:
        limit = f"{what} with a whole number from {least} to {most:,}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return value
