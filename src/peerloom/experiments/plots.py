"""The kinds of pictures by name, and what each is drawn from: a live system or a file."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from peerloom.client.client import Client
from peerloom.client.types import Session
from peerloom.errors import DataLossError, NotFoundError
from peerloom.experiments import catalogue
from peerloom.experiments.pictures.beliefs import draw_beliefs
from peerloom.experiments.pictures.selections import draw_hit_rate, draw_selections
from peerloom.experiments.pictures.simulation import draw_hit_rates, draw_hits, draw_regret
from peerloom.experiments.pictures.survival import draw_survival

MOST_NODES = 5
MOST_UPDATES = 2000
MOST_JOBS = 1000
MOST_SESSIONS = 100_000


@dataclass(frozen=True)
class Plot:
    """A kind of picture; exactly one of `of_system` and `of_result` is set."""

    name: str
    description: str
    of_system: Callable[[Client, Sequence[str]], Any] | None = None
    of_result: Callable[[Mapping[str, Any]], Any] | None = None


def _beliefs(client: Client, nodes: Sequence[str]) -> Any:
    """The nodes named, else those with the most evidence."""
    known = sorted(client.beliefs(), key=lambda one: (-one.updates, one.name))
    chosen = list(nodes) or [one.name for one in known[:MOST_NODES]]
    return draw_beliefs({name: client.belief_history(name, MOST_UPDATES) for name in chosen})


def _selections(client: Client, nodes: Sequence[str]) -> Any:
    return draw_selections(client.jobs(limit=MOST_JOBS))


def _survival(client: Client, nodes: Sequence[str]) -> Any:
    """A curve for each node named, else one of all nodes together."""
    if nodes:
        return draw_survival({name: client.sessions(name, limit=MOST_SESSIONS) for name in nodes})
    groups: dict[str, list[Session]] = defaultdict(list)
    groups["all nodes"] = client.sessions(limit=MOST_SESSIONS)
    return draw_survival(groups)


def _rate(result: Mapping[str, Any]) -> Any:
    return draw_hit_rates(result) if "reports" in result else draw_hit_rate(result)


def _result(result: Mapping[str, Any]) -> Any:
    name = result.get("experiment")
    if not isinstance(name, str):
        raise DataLossError("This file isn't a result of 'peerloom experiment': it names no experiment.")
    try:
        return catalogue.find(name).draw(result)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise DataLossError(
            f"This result of {name} isn't whole ({type(error).__name__}: {error}). Make it again with: "
            f"peerloom experiment {name}"
        ) from None


PLOTS: Mapping[str, Plot] = MappingProxyType(
    {
        one.name: one
        for one in (
            Plot("beliefs", "Belief over time of chosen nodes, the evidence marked.", of_system=_beliefs),
            Plot(
                "selections", "How often each node was asked, and how often it gave.", of_system=_selections
            ),
            Plot("survival", "How long nodes stay: survival curves of their sessions.", of_system=_survival),
            Plot("hit-rate", "Hit rate against budget, of a selection or a simulation.", of_result=_rate),
            Plot("regret", "Regret over rounds, of a simulation.", of_result=draw_regret),
            Plot("hits", "How often each node gave compute, of a simulation.", of_result=draw_hits),
            Plot("result", "Any experiment's result, drawn again.", of_result=_result),
        )
    }
)


def find(name: str) -> Plot:
    """The kind of this name. Raises NotFoundError with the nearest names."""
    if name not in PLOTS:
        error = NotFoundError.of_name("plot", name, PLOTS)
        text = f"{error.message} There are {', '.join(PLOTS)}."
        raise NotFoundError(text, reason=error.reason, metadata=error.metadata)
    return PLOTS[name]
