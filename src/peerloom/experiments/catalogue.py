"""The experiments by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from peerloom.errors import NotFoundError
from peerloom.experiments.settings import Settings, Tell


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it shows, and which of the thesis's figures it stands beside."""

    name: str
    description: str
    figures: str

    def run(self, settings: Settings, tell: Tell) -> dict[str, Any]:
        """Runs it; `tell` gets a line for each step. Raises a PeerloomError."""
        found: dict[str, Any] = import_module(f"peerloom.experiments.{_module(self.name)}").run(
            settings, tell
        )
        return found

    def draw(self, result: Mapping[str, Any]) -> Any:
        """The picture of a result as a matplotlib figure.

        Raises FailedPreconditionError without matplotlib.
        """
        return import_module(f"peerloom.experiments.pictures.{_module(self.name)}").draw(result)


def _module(name: str) -> str:
    return name.replace("-", "_")


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        one.name: one
        for one in (
            Experiment("scaling", "Time against 1 to 8 workers, over nodes and in one machine.", "4 and 5"),
            Experiment("selection", "Whom 50 rounds of asking reach, for each budget.", "6"),
            Experiment("heterogeneous", "Training on whatever a budget of 3 reaches.", "7 and 8"),
            Experiment("versus-single", "The system beside one node alone.", ""),
            Experiment(
                "network-scaling", "Time against 1 to 8 workers over ns-3, compute emulated.", "4 and 5"
            ),
            Experiment(
                "network-heterogeneous", "What a budget of 3 reaches, over ns-3, compute emulated.", "7 and 8"
            ),
            Experiment("survey", "Seven methods to synchronise, predicted, beside a survey's figures.", ""),
            Experiment("byzantine", "Training beside workers that lie, by each rule.", ""),
        )
    }
)


def find(name: str) -> Experiment:
    """The experiment of this name. Raises NotFoundError with the nearest names."""
    if name not in EXPERIMENTS:
        error = NotFoundError.of_name("experiment", name, EXPERIMENTS)
        text = f"{error.message} There are {', '.join(EXPERIMENTS)}."
        raise NotFoundError(text, reason=error.reason, metadata=error.metadata)
    return EXPERIMENTS[name]
