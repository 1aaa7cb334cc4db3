"""One loop over all epochs, an epoch at a time: for who was there, for who came late, and after a break."""

from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from peerloom.errors import InvalidArgumentError
from peerloom.integrations.epoch_batches import EpochBatches
from peerloom.worker.elastic.elastic_run import ElasticRun

LOADER: DataLoader[Any] = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True)
LOSS = torch.zeros(())


class ScriptedRun:
    """Stands in for a run: gives these batches, and commits steps as it is told."""

    def __init__(self, batches: str, committed: list[bool], joined_at: int = 0) -> None:
        self._script, self._committed, self._joined_at = batches, committed, joined_at
        self._registered: Any = None
        self.is_over = self.is_left = False

    def register(self, name: str, thing: Any) -> None:
        self._registered = thing

    def batches(self, loader: object, epochs: int) -> Iterator[str]:
        self._registered.load_state_dict({"step": self._joined_at})
        yield from self._script
        self.is_over = True

    def step(self, loss: Tensor) -> bool:
        return self._committed.pop(0)

    def __exit__(self, *_: object) -> None:
        """It has ended, or is left."""
        self.is_left = True


def walked(run: ScriptedRun, epochs: int) -> list[str]:
    """The batches that a loop over epochs gets, those of an epoch put together."""
    batches = EpochBatches(cast(ElasticRun, run), LOADER, epochs)

    def steps() -> Iterator[str]:
        for batch in batches:
            batches.make_step(LOSS)
            yield cast(str, batch)

    return ["".join(steps()) for _ in range(epochs)]


def test_each_epoch_has_its_batches_and_the_last_ends_the_run() -> None:
    run = ScriptedRun("abcdef", [True] * 6)
    assert walked(run, 3) == ["ab", "cd", "ef"]
    assert run.is_over


def test_a_batch_whose_exchange_broke_comes_again_in_its_epoch() -> None:
    run = ScriptedRun("abbcd", [True, False, True, True, True])
    assert walked(run, 2) == ["abb", "cd"]
    assert run.is_over


@pytest.mark.parametrize(
    ("joined_at", "given", "expected"), [(2, "cdef", ["", "cd", "ef"]), (3, "def", ["", "d", "ef"])]
)
def test_who_joins_late_goes_on_where_the_others_are(joined_at: int, given: str, expected: list[str]) -> None:
    run = ScriptedRun(given, [True] * len(given), joined_at)
    assert walked(run, 3) == expected
    assert run.is_over


def test_what_is_no_loader_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="a DataLoader that shuffles"):
        EpochBatches(cast(ElasticRun, None), [1, 2], 1)


def test_a_loop_that_stops_early_leaves_the_run() -> None:
    run = ScriptedRun("abcdef", [True] * 6)
    batches = EpochBatches(cast(ElasticRun, run), LOADER, 3)
    for _ in batches:
        batches.make_step(LOSS)
    batches.finish()
    assert run.is_left
    assert not run.is_over


def test_a_trainer_stops_when_another_worker_has_ended_the_loop() -> None:
    lightning = pytest.importorskip("peerloom.integrations.lightning", reason="needs pytorch_lightning")
    trainer = MagicMock(should_stop=False)
    batches = EpochBatches(cast(ElasticRun, ScriptedRun("abc", [])), LOADER, 3)
    batches.begin()
    assert list(lightning._TrainerBatches(trainer, batches)) == ["a", "b", "c"]
    assert trainer.should_stop
