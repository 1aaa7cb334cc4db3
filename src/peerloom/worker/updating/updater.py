"""From a step's sum of gradients to the next parameters: unscale, clip, optimise, move on in the schedule."""

import json
import warnings
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from peerloom.errors import InvalidArgumentError
from peerloom.worker.updating.clipping import clip_gradients, gradients_of, sum_of_squares
from peerloom.worker.updating.named_state import NamedOptimiser, check_apart, check_known, load_schedule
from peerloom.worker.updating.part_of_batch import as_by_whole_batch
from peerloom.worker.updating.partwise_update import why_not_in_parts
from peerloom.worker.updating.precision import GradientScaler


class Updater:
    """Optimisers with what belongs to them: schedules, clipping, and fp16's scale.

    An optimiser none of whose parameters has a gradient rests, and its schedules with it. All follows from
    the sums of gradients and the epochs' metrics alone, and `state` is all that it remembers. Raises
    InvalidArgumentError for an optimiser of other parameters than the model's, two of one parameter, and a
    state that a file of numbers and text can't hold.
    """

    def __init__(
        self,
        model: nn.Module,
        optimisers: Sequence[Optimizer],
        schedulers: Sequence[LRScheduler] = (),
        clip_norm: float | None = None,
        scaler: GradientScaler | None = None,
    ) -> None:
        self.optimisers = list(optimisers)
        self._model = model
        self._schedulers = list(schedulers)
        self._clip_norm = clip_norm
        self._scaler = scaler
        self._named = [NamedOptimiser(each, model) for each in optimisers]
        check_apart(self._named)
        self._updates = 0  # that the schedules have seen
        self._metric: float | None = None  # of an epoch, which the schedules that want one haven't seen yet
        self._updated = [parameter for each in self._named for parameter in each.parameters]
        try:
            json.dumps(self.state()[0])
        except TypeError as error:
            limit = "an optimiser and a schedule that remember tensors, numbers and text"
            raise InvalidArgumentError.of_field("optimiser() or scheduler()", str(error), limit) from error

    @property
    def wants_metric(self) -> bool:
        """Whether one of its schedules moves on by an epoch's metric."""
        return any(map(wants_metric, self._schedulers))

    @property
    def learning_rate(self) -> float:
        """Of the next step, in the first group of parameters."""
        return float(self.optimisers[0].param_groups[0]["lr"])

    def scaled(self, loss: Tensor) -> Tensor:
        """The same loss, to be differentiated: its gradients come with fp16's scale, if there is one."""
        return loss if self._scaler is None else self._scaler.scaled(loss)

    def squares(self, left_out: Collection[str] = ()) -> float:
        """The sum of the squares of all gradients but those of `left_out`, if they are clipped; else 0."""
        if self._clip_norm is None:
            return 0.0
        named = [pair for each in self._named for pair in zip(each.names, each.parameters, strict=True)]
        return sum_of_squares(gradients_of([found for name, found in named if name not in left_out]))

    def step(self, norm: float | None = None, part: float = 1.0) -> None:
        """The next parameters of the gradients in `.grad`, which are cleared; and the next learning rate.

        `norm` is that of the whole gradient, where others hold parts of it: these are clipped by it. Of a
        batch's samples the gradients are of such a `part`.
        """
        self._show_metric()
        stepping = self.stepping
        optimisers = [each.optimiser for each in stepping]
        if self._scaler is not None:
            self._scaler.unscale(optimisers)
        if self._clip_norm is not None:
            clip_gradients(self._updated, self._clip_norm, norm)
        with as_by_whole_batch(optimisers, part):
            if self._scaler is not None:
                self._scaler.step(optimisers)
            else:
                for optimiser in optimisers:
                    optimiser.step()
        self.end_step(stepping)

    @property
    def stepping(self) -> list[NamedOptimiser]:
        """The optimisers that the gradients of now move."""
        return [each for each in self._named if not each.rests] or self._named

    @property
    def why_whole(self) -> str:
        """Why parameters can't be updated before all gradients are there; empty where they can."""
        if self._clip_norm is not None:
            return "gradients are clipped by the norm of all"
        if self._scaler is not None:
            return "fp16's scale looks at all gradients"
        if self.wants_metric:
            return "a schedule wants a metric"
        return why_not_in_parts(self.optimisers)

    def end_step(self, stepping: Sequence[NamedOptimiser]) -> None:
        """All parameters are updated by these optimisers: on to the next learning rate."""
        self.clear()
        with nullcontext() if self._scaler is None else _without_a_step():
            self._step_schedules([each.optimiser for each in stepping])

    def measured(self, metric: float | None) -> None:
        """An epoch's metric, for schedules that want one: they see it with the next step. None: forget it.

        Not at once, as an epoch may be measured anew, and would count twice then.
        """
        self._metric = metric if self.wants_metric else None

    def reach(self, updates: int) -> None:
        """Moves the schedule on to where it is after so many updates: others have made those before."""
        if self._updates < updates:
            with _without_a_step():
                while self._updates < updates:
                    self._step_schedules(self.optimisers)

    def clear(self) -> None:
        """Forgets gradients, of parameters that the optimiser leaves alone too: they would add up."""
        self._model.zero_grad()

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What is plain, for JSON, and the tensors, by name; these are the optimiser's own, not copies."""
        state: dict[str, Any] = {}
        groups: list[dict[str, Any]] = []
        tensors: dict[str, Tensor] = {}
        for each in self._named:
            described, own = each.flatten()
            state |= described["state"]
            groups += described["groups"]
            tensors |= own
        rates = {**self._rates(), "updates": self._updates}
        return {"state": state, "groups": groups, **rates}, tensors

    def load(self, described: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Takes over another worker's `state`. Raises KeyError or ValueError for one of another task."""
        schedules, scale, groups = described["schedules"], described["scale"], list(described["groups"])
        if (len(schedules), scale is None) != (len(self._schedulers), self._scaler is None):
            raise ValueError("only one of both has a learning-rate schedule, or computes in fp16")
        if len(groups) != sum(len(each.param_groups) for each in self.optimisers):
            raise ValueError("its optimisers have other groups of parameters")
        check_known(self._named, described["state"])
        for each in self._named:
            own = [groups.pop(0) for _ in each.optimiser.param_groups]
            each.optimiser.load_state_dict(each.unflatten(described["state"], own, tensors))
        for scheduler, told in zip(self._schedulers, schedules, strict=True):
            load_schedule(scheduler, told)
        if self._scaler is not None:
            self._scaler.load(scale)
        self._updates, self._metric = described["updates"], described["metric"]

    def moments(self) -> list[Tensor]:
        """The optimisers' tensors, in an order that all ranks have."""
        return [
            entry
            for optimiser in self.optimisers
            for _, entries in sorted(optimiser.state_dict()["state"].items())
            for _, entry in sorted(entries.items())
            if isinstance(entry, Tensor)
        ]

    def fingerprint(self) -> int:
        """A number below 2**32, other for another learning rate, place in the schedule, or scale."""
        rates = [group.get("lr") for each in self.optimisers for group in each.param_groups]
        return zlib.crc32(json.dumps([rates, self._rates()], sort_keys=True).encode())

    def _rates(self) -> dict[str, Any]:
        return {
            "schedules": [scheduler.state_dict() for scheduler in self._schedulers],
            "metric": self._metric,
            "scale": None if self._scaler is None else self._scaler.state(),
        }

    def _show_metric(self) -> None:
        metric, self._metric = self._metric, None
        for scheduler in self._schedulers:
            if metric is not None and isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step(metric)

    def _step_schedules(self, stepping: Sequence[Optimizer]) -> None:
        self._updates += 1
        for scheduler in self._schedulers:
            if not wants_metric(scheduler) and any(scheduler.optimizer is each for each in stepping):
                scheduler.step()


def wants_metric(scheduler: LRScheduler) -> bool:
    """Whether it moves on by an epoch's metric, and not with each step."""
    return isinstance(scheduler, ReduceLROnPlateau)


@contextmanager
def _without_a_step() -> Iterator[None]:
    """The schedule goes on where the optimiser didn't: its scale was too large, or others made the steps."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of", UserWarning)
        yield
