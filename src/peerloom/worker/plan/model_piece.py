"""The piece of its stage's layers that a worker has, and how it stays the same training as the others'."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from peerloom.kit.stage_ranks import StageRanks
from peerloom.worker.plan.cut_layers import cut_layers
from peerloom.worker.plan.piece_layers import cut_model, exchange_in
from peerloom.worker.plan.piece_links import ExchangePace, PieceLinks
from peerloom.worker.plan.stage_change import ChangeLayout
from peerloom.worker.plan.stage_links import WorkerLinks
from peerloom.worker.plan.stage_model import StageModel
from peerloom.worker.plan.tensor_cuts import TensorCut
from peerloom.worker.plan.tensor_places import check_dense
from peerloom.worker.plan.whole_state import StatePieces

_NO_SPARSE = "workers that have pieces of the same layers tell each other dense ones. Train with plan data"
Takers = dict[int, Callable[[Tensor], object]]


class ModelPiece:
    """That of a `stage`, where the model's state is cut by `cuts`, by name."""

    pace: ExchangePace
    _shared: ChangeLayout

    def __init__(self, cuts: Mapping[str, TensorCut], ranks: StageRanks, stage: int) -> None:
        self.state = StatePieces(cuts, ranks.piece_of(stage))
        self._ranks = ranks
        self._links = PieceLinks(ranks.team_of(stage), self.state.piece)

    def connect(self, links: WorkerLinks) -> None:
        """A generation begins, with these links, whose `pace` is measured: all call it together."""
        self._links.connect(links)
        self.pace = self._links.pace()

    def cut(self, model: nn.Module) -> Takers:
        """Cuts a model, which computes together with the others' from now on.

        Gives what takes the values of each tensor that is cut, by its `id`: pieces have none yet.
        """
        layers = cut_layers(model, self._ranks.pieces)
        takers = cut_model(layers, self.state.piece)
        exchange_in(layers, self._links)
        return takers

    def cut_whole(self, model: nn.Module) -> None:
        """The same of a model that has its values, which pieces take."""
        whole = {id(each): each for each in model.parameters()}
        for key, take in self.cut(model).items():
            take(whole[key].detach())

    def hold(self, model: StageModel) -> None:
        """This is the stage's model from now on.

        The gradients of parameters `counted_elsewhere` are counted by the first piece's worker.
        """
        self._shared = ChangeLayout(model, self.state.cuts)
        self._trained = dict(model.named_parameters())
        whole = self._trained.keys() - self.state.cuts.keys()
        self.counted_elsewhere = frozenset(whole if self.state.piece else ())

    def agree(self) -> None:
        """Gradients and buffers of what all have whole become those of the first piece's worker.

        All compute the same, but perhaps on processors that round differently. Raises what
        `PieceLinks.give` does, InvalidArgumentError for a sparse gradient.
        """
        for name, parameter in self._trained.items():
            check_dense(name, parameter.grad, _NO_SPARSE, "SPARSE_IN_PIECES")
        like = torch.empty(self._shared.size_bytes, dtype=torch.uint8)
        if self.state.piece:
            self._shared.unpack(self._links.give(None, like))
        elif like.numel():
            self._links.give(self._shared.packed(), like)


def cut_alike(model: nn.Module, ranks: StageRanks, stage: int) -> nn.Module:
    """A model whose tensors are those of a stage's piece, and that never computes."""
    cut_model(cut_layers(model, ranks.pieces), ranks.piece_of(stage))
    return model
