"""What computing in pieces takes of the ways between its workers, found without computing anything."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.kit.logs import get_logger
from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.worker.batches import form_of
from peerloom.worker.plan.blueprint import without_values
from peerloom.worker.plan.chain import chain_of
from peerloom.worker.plan.cut_layers import cut_layers, cuts_by_name
from peerloom.worker.plan.piece_layers import cut_model, exchange_in
from peerloom.worker.plan.piece_links import ExchangePace
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.task import Samples, Task, load_batch

_BY_TENSORS = ("Adafactor", "LBFGS", "Muon")
_log = get_logger()


@dataclass(frozen=True)
class Exchanged:
    """Exchanges of one worker for a micro-batch, forward and back: how many, and bytes a sample."""

    count: int = 0
    sample_bytes: int = 0

    def __add__(self, other: "Exchanged") -> "Exchanged":
        return Exchanged(self.count + other.count, self.sample_bytes + other.sample_bytes)


@dataclass(frozen=True)
class PieceSurvey:
    """How the model's state is cut, by name, and what each layer of the chain exchanges; empty: not known."""

    cuts: dict[str, TensorCut]
    exchanged: tuple[Exchanged, ...] = ()


def survey_pieces(task: Task, train: Samples, plan: ParallelPlan) -> PieceSurvey:
    """Of a plan with pieces, on a model without values and the first sample.

    Raises InvalidArgumentError for a model of which nothing can be cut, or whose own code minds pieces.
    """
    name, model = type(task).__name__, without_values(task)
    cuts = cuts_by_name(model, cut_layers(model, plan.pieces))
    if not cuts:
        limit = (
            f"data or a pipeline: no layer of {name}'s model can be cut in {plan.pieces}, as linear layers, "
            "embeddings, convolutions and attention can that are large enough"
        )
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    if not next(model.parameters()).is_meta:
        _log.warning("exchanges_not_counted", reason="the model's constructor asks for values")
        return PieceSurvey(cuts)
    inputs = load_batch(task, train, torch.zeros(1, dtype=torch.int64))[0].to("meta")
    try:
        whole = form_of(_through(model, inputs))
    except Exception as error:  # what needs values can't be run without memory
        _log.warning("exchanges_not_counted", reason=f"{type(error).__name__}: {error}")
        return PieceSurvey(cuts)
    for piece in (0, plan.pieces - 1):  # the largest and the smallest
        try:
            found, exchanged = _run(without_values(task), inputs, plan.pieces, piece)
            why = "" if found == whole else f"it gives {found}, and the whole model {whole}"
        except Exception as error:  # the model's own code meets pieces where it knows whole layers
            why = f"{type(error).__name__}: {error}"
        if why:
            raise InvalidArgumentError(
                f"{name}'s model doesn't compute with its layers in {plan.pieces} pieces: {why}. Have the "
                "module say by divided_linears() what is divided together, or train with plan data or a "
                "pipeline.",
                reason="MODEL_NOT_DIVISIBLE",
            )
    return PieceSurvey(cuts, exchanged)


def check_by_numbers(optimisers: Sequence[object], task: Task) -> None:
    """Raises InvalidArgumentError for an optimiser of torch that looks at a tensor as a whole."""
    for each in optimisers:
        if type(each).__name__ in _BY_TENSORS and type(each).__module__.startswith("torch.optim"):
            raise InvalidArgumentError(
                f"{type(task).__name__}.optimiser() is {type(each).__name__}, which looks at each parameter "
                "as a whole, and the job's plan has it in pieces. Use one that takes each number by itself, "
                "as AdamW does, or train with plan data, shards or a pipeline.",
                reason="OPTIMISER_NOT_DIVISIBLE",
            )


@torch.no_grad()
def _through(model: nn.Module, inputs: Tensor) -> object:
    for layer in chain_of(model.eval())[0]:
        inputs = layer.module(inputs)
    return inputs


def _run(model: nn.Module, inputs: Tensor, pieces: int, piece: int) -> tuple[str, tuple[Exchanged, ...]]:
    """The form of what comes out, and what each layer exchanges."""
    layers = cut_layers(model, pieces)
    cut_model(layers, piece)
    counting = _Counting(piece, pieces)
    exchange_in(layers, counting)
    found: list[Exchanged] = []
    here = inputs
    for layer in chain_of(model.train())[0]:
        counting.so_far = Exchanged()
        entered = here.detach().requires_grad_() if found and here.is_floating_point() else here
        here = layer.module(entered)
        if isinstance(here, Tensor) and here.requires_grad:
            torch.autograd.backward([here], [torch.ones_like(here)])
        found.append(counting.so_far)
    return form_of(here), tuple(found)


class _Counting:
    """Exchanges nothing, and gives what has the right form."""

    def __init__(self, piece: int, pieces: int) -> None:
        self.piece, self._pieces = piece, pieces
        self.so_far = Exchanged()

    def sum(self, own: Tensor) -> Tensor:
        # Between two, each sends all; else a part to each, and its sum again: twice as much at most.
        times = 1 if self._pieces == 2 else 2
        self.so_far += Exchanged(1, times * own.nbytes)
        return torch.empty_like(own)

    def join(self, own: Tensor, dim: int, cut: TensorCut) -> Tensor:
        shape = list(own.shape)
        shape[dim] = cut.shape[cut.dim]
        whole = own.new_empty(shape)
        self.so_far += Exchanged(1, whole.nbytes - own.nbytes)
        return whole


def exchange_s(exchanged: Sequence[Exchanged], sizes: Sequence[int], pace: ExchangePace) -> float:
    """The seconds of a step within layers, of micro-batches of these sizes; nothing hides them."""
    total = sum(exchanged, Exchanged())
    return len(sizes) * total.count * pace.delay_s + sum(sizes) * total.sample_bytes * pace.byte_s
