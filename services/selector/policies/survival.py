"""Ours: whoever is expected to get the most work finished, chosen as a set, with a bounded rate of trials."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from peerloom.kit.quantity_texts import shown_bytes, shown_number, shown_s
from peerloom.services.selector.policies.gang_choice import best_gang, reserves
from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.past import FadedSums, Past
from peerloom.services.selector.policies.survival_model import (
    VALUE_FORMULA,
    Outlook,
    Priors,
    outlook,
    turned_chance,
)
from peerloom.services.selector.policies.trials import Trials, whose_turn

_DAY_S = 86_400.0


@dataclass(frozen=True)
class SurvivalPolicy:
    """Who was never asked for work under its name has trials only; who lends no slots is not asked.

    A place that no set would gain from stays empty, with two exceptions: newcomers get what nobody proven
    would fill, and where it is known how many slots are of use, places left go to reserves who wouldn't slow
    the set: they are asked last and needed when others refuse.
    """

    priors: Priors = field(default_factory=Priors)
    trials: Trials = field(default_factory=Trials)
    name: str = "survival"
    description: str = (
        "Takes the set expected to finish the most work: sessions that last, work accepted, measured "
        "speed and network; tries newcomers at a bounded rate."
    )
    source: str = (
        "Ours. Log-logistic sessions: S. Bennett, 1983; Beta acceptance: A. Gelman et al., Bayesian Data "
        "Analysis, chapter 2; change: E. S. Page, 1954; forgetting: Josang and Ismail, 2002."
    )

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """No chance in it. Time grows linearly with the candidates."""
        past, view = candidates.known, self._outlook(candidates, request)
        lends = candidates.slots > 0
        turns = np.empty(0, np.intp)
        if self.trials.is_due(past):
            turns = whose_turn(past, lends & ~past.owner_is_known, request.budget, view.hazard)
        proven = lends & past.is_proven & (view.slots > 0)
        if len(turns) == 0 and self.trials.is_due(past):
            turns = self._again(past, view, proven, request)
        proven[turns] = False
        gang = best_gang(view, proven, request.budget - len(turns), request.slots)
        places = request.budget - len(turns) - len(gang.members)
        spare = reserves(view, proven, gang, places if request.slots else 0)
        unfilled = request.budget - len(turns) - int(np.count_nonzero(proven))
        more = self._strangers(past, lends, turns, unfilled, view.hazard)
        indices = np.concatenate([gang.members, turns, more, spare])
        scores = np.where(past.is_proven, view.score, np.nan)
        proven_said = [_reason(view, past, i, gang.value) for i in gang.members.tolist()]
        tried = [_trial(past, i) for i in (*turns.tolist(), *more.tolist())]
        held = [
            f"in reserve, should others refuse: score {shown_number(view.score[i])}" for i in spare.tolist()
        ]
        return Selection(indices, proven_said + tried + held, scores)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Hazard, acceptance, speed, network and the score, each with the evidence behind it."""
        past, view = candidates.known, self._outlook(candidates, request)
        own, p = past.record, self.priors

        def at(column: npt.NDArray[np.float64]) -> float:
            return float(column[index])

        names = "; no better than all names of its owner" if past.shares_owner[index] else ""
        return [
            ScoreTerm(
                "hazard",
                at(view.hazard) * _DAY_S,
                "ends a day",
                f"{at(own.interruptions):.3g} interruptions and {at(own.departures):.3g} goodbyes in "
                f"{shown_number(at(own.exposure_s) / 3600)} h online, all fading; open for "
                f"{shown_number(at(past.open_s) / 3600)} h, and the job lasts {shown_s(at(view.lasts_s))} "
                f"there{names}",
            ),
            ScoreTerm(
                "acceptance",
                at(view.acceptance),
                "of requests",
                f"{at(own.trainings):.3g} trainings finished, {at(own.unfinished):.3g} requests refused or "
                f"unfinished, fading; before any: {p.good:g} and {p.refused:g}{names}; by its "
                f"newest ones it has turned bad with a chance of {at(turned_chance(own, p)):.2g}",
            ),
            ScoreTerm("speed", at(view.speed), "GFLOP/s a slot", _speed_evidence(past, index)),
            ScoreTerm(
                "transfer",
                at(view.transfer_s),
                "s for a typical model",
                _transfer_evidence(own, index),
            ),
            ScoreTerm("delay", 1000 * at(view.delay_s), "ms a round trip", _delay_evidence(past, index)),
            ScoreTerm("slots", at(view.slots), "slots", _slots_evidence(candidates, index)),
            ScoreTerm("gain", at(view.gain), "slots", f"expected over the next {shown_s(at(view.lasts_s))}"),
            ScoreTerm("score", at(view.score), "GFLOP/s", f"as a set of one: {VALUE_FORMULA}"),
        ]

    def _again(
        self, past: Past, view: Outlook, may: npt.NDArray[np.bool_], request: SelectionRequest
    ) -> npt.NDArray[np.intp]:
        """Whoever was asked longest ago of those that don't slow the set: bad ones may have become good."""
        gang = best_gang(view, may, request.budget, request.slots)
        if len(gang.members) == 0:
            return gang.members
        return whose_turn(past, may & (view.pace >= view.pace[gang.members].min()), 1)

    def _outlook(self, candidates: Candidates, request: SelectionRequest) -> Outlook:
        return outlook(candidates, self.priors, request.horizon_s or self.priors.horizon_s)

    def _strangers(
        self,
        past: Past,
        lends: npt.NDArray[np.bool_],
        taken: npt.NDArray[np.intp],
        places: int,
        risk: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.intp]:
        """Newcomers for places that nobody proven is there to fill."""
        if places <= 0:
            return np.empty(0, np.intp)
        free = lends & ~past.is_proven
        free[taken] = False
        if len(taken):
            free &= ~np.isin(past.owner, past.owner[taken])
        return whose_turn(past, free, places, risk)


def _reason(view: Outlook, past: Past, index: int, value: float) -> str:
    return (
        f"in the set with the most expected work ({shown_number(value)} GFLOP/s): "
        f"{view.slots[index]:.3g} slots at {shown_number(view.speed[index])}, "
        f"accepts {view.acceptance[index]:.0%}, "
        f"ends {view.hazard[index] * _DAY_S:.2g} times a day ({past.record.interruptions[index]:.1f} "
        f"interruptions in {past.record.exposure_s[index] / 3600:.1f} h)"
    )


def _trial(past: Past, index: int) -> str:
    waited = past.owner_asked[index]
    since = "was never asked" if waited < 0 else f"was last asked in selection {int(waited) + 1:,}"
    return f"a trial, one turn an owner: its owner {since}"


def _speed_evidence(past: Past, index: int) -> str:
    measurements, said = float(past.record.speeds[index]), float(past.number("speed_gflops")[index])
    says = "it says nothing" if np.isnan(said) else f"it says {shown_number(said)}, which can only lower it"
    if measurements < 1e-6:
        return f"no job has compared it with others: their median; {says}"
    return f"compared with other workers of {measurements:.3g} jobs, fading; {says}"


def _slots_evidence(candidates: Candidates, index: int) -> str:
    given = float(candidates.known.record.slots_given[index])
    seen = f"{given:.3g} given at once, fading" if given else "none given yet"
    return f"it says {candidates.slots[index]}; {seen}: beyond those it counts for as many again at most"


def _transfer_evidence(own: FadedSums, index: int) -> str:
    count, size_bytes = float(own.transfers[index]), float(own.transfer_bytes[index])
    if count < 1e-6:
        return "no transfers yet: as fast as those of the others"
    took_s = float(own.transfer_s[index])
    rate = f", {shown_bytes(size_bytes / took_s)}/s" if took_s > 0 else ""
    return f"{count:.3g} transfers of {size_bytes:,.0f} bytes in {shown_s(took_s)}{rate}, fading"


def _delay_evidence(past: Past, index: int) -> str:
    said_s = float(past.number("heartbeat_s")[index])
    if np.isnan(said_s):
        return "it says nothing of its heartbeats: the median of the others"
    return f"its heartbeats, {shown_s(said_s)} by its own word; at least the median of all"
