"""Trainings on the digits with hostile workers, all in one process, by the rules that real workers use.

`python -m` with this module's name reads one JSON object a line (`Rehearsal`'s fields), and prints one a
line: the accuracy on the test digits, and what the rule took. Only the exchange is left out: each vote is
whole here.
"""

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from peerloom.kit.robust_rules import AUTO, OFF
from peerloom.worker.schedule import Schedule, samples_of, split_batch
from peerloom.worker.sync.robust import aggregation
from peerloom.worker.sync.robust.attacks import LABEL_FLIP, attacked
from peerloom.worker.sync.robust.histories import Histories
from peerloom.worker.sync.robust.rehearsed_audits import RehearsedAudits
from peerloom.worker.sync.robust.votes import Votes
from peerloom.worker.task import Split
from peerloom.worker.tasks.digits import Digits

BATCH, EPOCHS, HIDDEN = 128, 10, 32
LEARNING_RATE, MOMENTUM = 0.1, 0.9
SPEEDS = (1, 2, 3, 4)  # of the workers in turn: shares of the batch follow them
CLASSES = 10


@dataclass(frozen=True)
class Rehearsal:
    """One training of `workers` owners, of whom `hostile` attack; `rule` as in `kit.robust_rules`.

    The rule is used whatever the number of owners is. With `audits` shares are computed again, and whoever
    lied is dismissed.
    """

    workers: int
    hostile: int
    rule: str
    attack: str
    seed: int
    epochs: int = EPOCHS
    audits: bool = False

    def run(self) -> dict[str, Any]:
        """Trains; returns the accuracy, seconds a step in the rule, and what came of audits."""
        task = Digits()
        train, test = (Split(*task.batch(part, torch.arange(len(part)))) for part in task.data())
        torch.manual_seed(self.seed)
        model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
        )
        optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        schedule = Schedule(len(train), BATCH, self.epochs, self.seed)
        chance = torch.Generator().manual_seed(self.seed)
        places = torch.randperm(self.workers, generator=chance).tolist()
        shares = [SPEEDS[place % len(SPEEDS)] for place in places]
        hostile = torch.randperm(self.workers, generator=chance).tolist()[: self.hostile]
        audits = RehearsedAudits(self.workers, hostile, random.Random(self.seed)) if self.audits else None
        aggregator, rule_s = Aggregator(self.rule), 0.0
        for step in range(schedule.total_steps):
            first, end = schedule.bounds(step)
            positions = schedule.order(schedule.epoch_of(step))[first:end]
            if audits is not None:
                shares = [0 if rank in audits.dismissed else share for rank, share in enumerate(shares)]
            counts = split_batch(end - first, shares)
            liars = hostile if audits is None else audits.liars()
            honest = partial(self._votes, model, train, positions, counts, [])
            votes = self._votes(model, train, positions, counts, liars)
            there = [rank for rank, share in enumerate(shares) if share]
            lying = [there.index(rank) for rank in liars]
            votes[there] = attacked(self.attack, votes[there], lying, chance)
            if audits is not None:
                audits.after_step(votes, counts, honest)
            started_s = time.perf_counter()
            gradient = aggregator.gradient(votes[there], there, [counts[rank] for rank in there])
            rule_s += time.perf_counter() - started_s
            _put(model, gradient)
            optimiser.step()
        with torch.no_grad():
            right = (model(test.inputs).argmax(1) == test.targets).double().mean()
        found = {"accuracy": float(right), "rule_s": rule_s / schedule.total_steps}
        return found if audits is None else {**found, **_report(audits, schedule.total_steps)}

    def _votes(
        self,
        model: torch.nn.Module,
        train: Split,
        positions: torch.Tensor,
        counts: list[int],
        hostile: list[int],
    ) -> torch.Tensor:
        most = max(counts)
        indices = torch.zeros(len(counts), most, dtype=torch.long)
        weights = torch.zeros(len(counts), most)
        for rank, count in enumerate(counts):
            indices[rank, :count] = samples_of(positions, counts, rank)
            weights[rank, :count] = 1 / max(1, count)
        targets = train.targets[indices]
        if self.attack == LABEL_FLIP:
            targets[hostile] = CLASSES - 1 - targets[hostile]
        parameters = {name: value.detach() for name, value in model.named_parameters()}

        def loss(
            parameters: dict[str, torch.Tensor],
            inputs: torch.Tensor,
            targets: torch.Tensor,
            weights: torch.Tensor,
        ) -> torch.Tensor:
            outputs = functional_call(model, parameters, (inputs,))
            return (functional.cross_entropy(outputs, targets, reduction="none") * weights).sum()

        found = vmap(grad(loss), in_dims=(None, 0, 0, 0))(parameters, train.inputs[indices], targets, weights)
        return torch.cat([found[name].flatten(1) for name in parameters], dim=1)


def _report(audits: RehearsedAudits, steps: int) -> dict[str, Any]:
    hostile = sorted(audits.hostile)
    return {
        "accused_at": [audits.accused.get(rank) for rank in hostile],
        "dismissed_at": [audits.dismissed.get(rank) for rank in hostile],
        "honest_accused": len(audits.accused.keys() - set(hostile)),
        "honest_dismissed": len(audits.dismissed.keys() - set(hostile)),
        "audited_steps": audits.audited_steps / steps,
    }


class Aggregator:
    """A rule of whole votes over the steps of a training; OFF: their mean by samples."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._there: list[int] = []
        self._histories: list[Histories] = []

    def gradient(self, values: torch.Tensor, there: list[int], counts: list[int]) -> torch.Tensor:
        """The gradient [d] of the votes [n, d] of the ranks that are there."""
        names = tuple(str(rank) for rank in there)
        if self._rule == AUTO:
            return self._of_parts(values, there, names, counts)
        votes = Votes(values, names, tuple(counts), ())
        if self._rule == OFF:
            return aggregation.of_part(aggregation.MEAN, votes)
        if not aggregation.needs_distances(self._rule):
            return aggregation.of_part(self._rule, votes)
        weights = aggregation.weights_of(self._rule, aggregation.part_products(votes, names))
        return aggregation.of_part_by(weights, votes, names)

    def _of_parts(
        self, values: torch.Tensor, there: list[int], names: tuple[str, ...], counts: list[int]
    ) -> torch.Tensor:
        """As each rank has a part and histories of its own, anew in each generation."""
        if there != self._there:
            self._there, self._histories = list(there), [Histories() for _ in there]
        results = []
        for histories, part in zip(self._histories, values.tensor_split(len(there), dim=1), strict=True):
            votes = Votes(part, names, tuple(counts), ())
            histories.add([votes])
            results.append(aggregation.of_part_without(histories.apart(), votes))
        return torch.cat(results)


def _put(model: torch.nn.Module, gradient: torch.Tensor) -> None:
    first = 0
    for parameter in model.parameters():
        parameter.grad = gradient[first : first + parameter.numel()].view_as(parameter).clone()
        first += parameter.numel()


def main() -> None:
    """Reads and answers line by line."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        rehearsal = Rehearsal(**json.loads(line))
        print(json.dumps({**asdict(rehearsal), **rehearsal.run()}), flush=True)


if __name__ == "__main__":
    main()
