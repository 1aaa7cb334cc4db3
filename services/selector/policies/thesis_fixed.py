"""The thesis's formula with its known flaws repaired; each repair can be switched."""

from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from peerloom.errors import NotFoundError
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest
from peerloom.services.selector.policies.past import Past
from peerloom.services.selector.policies.ranking import highest, reasons
from peerloom.services.selector.policies.trials import Trials, whose_turn

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Repairs:
    """What is repaired; True: it is.

    `fading`: counts lose half their worth with each half-life, so old nodes don't win for ever.
    `uptime_once`: time_score is added once; printed, (3) and (4) together add it twice.
    `steady_uptime`: time_score = ln(mean session + 1), so flapping earns nothing; printed, each session adds
    a logarithm of its own, and ten short ones earn more than one long one.
    `strength`: ln(1 + slots) is added; printed, compute strength is not in it at all.
    `newcomers`: every so many selections those of whom nothing is known have a turn; printed, only luck.
    """

    fading: bool = True
    uptime_once: bool = True
    steady_uptime: bool = True
    strength: bool = True
    newcomers: bool = True

    @classmethod
    def only(cls, names: list[str]) -> "Repairs":
        """Those named, and no other. Raises NotFoundError with the nearest names."""
        known = [one.name for one in fields(cls)]
        wanted = [name.strip().replace("-", "_") for name in names if name.strip()]
        for name in wanted:
            if name not in known:
                raise NotFoundError.of_name("repair", name[:80], known)
        return cls(**{name: name in wanted for name in known})


@dataclass(frozen=True)
class _Parts:
    earned: Floats
    time_score: Floats
    reduced: Floats
    strength: Floats
    score: Floats


@dataclass(frozen=True)
class ThesisFixedPolicy:
    """score = (earned + uptime*time_score - interruptions - unfinished + strength) / (1 - w.score_old).

    `earned` is formula (1) without Score_old. Dividing by 1 - w.score_old gives what the printed recursion
    settles at when the counts stay as they are, so with every repair off (uptime = 2, strength = 0, counts
    that don't fade, the printed time_score) it ranks as the thesis does, and each repair can be judged alone.
    """

    repairs: Repairs = field(default_factory=Repairs)
    weights: Weights = field(default_factory=Weights)
    trials: Trials = field(default_factory=Trials)
    name: str = "thesis-fixed"
    description: str = (
        "The thesis's formula with fading counts, uptime once, no gain by flapping, strength, and trials of "
        "newcomers; thesis-fixed:fading,strength has these repairs only."
    )
    source: str = "Section 4.3 of the thesis; the repairs are ours."

    def with_repairs(self, names: list[str]) -> "ThesisFixedPolicy":
        """The same with these repairs only. Raises NotFoundError for an unknown one."""
        return replace(self, repairs=Repairs.only(names))

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """Highest score first; in a trial, owners of whom nothing is known first."""
        score, past = self._parts(candidates).score, candidates.known
        count = min(request.budget, len(score))
        turns = np.empty(0, np.intp)
        if self.repairs.newcomers and count and self.trials.is_due(past):
            turns = whose_turn(past, ~past.owner_is_known, count)
        left = score.copy()
        left[turns] = -np.inf
        others, tied = highest(left, count - len(turns), rng)
        said = reasons("score", score[others], tied, len(score))
        return Selection(
            np.concatenate([turns, others]),
            [
                "trial: nothing is known of its owner, who waited longest",
            ]
            * len(turns)
            + said,
            score,
        )

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Each part of the score."""
        parts, on = self._parts(candidates), self.repairs
        settled = 1 / (1 - self.weights.score_old)
        counts = "counts fading" if on.fading else "all counts so far"
        uptime = "ln(mean session + 1)" if on.steady_uptime else "sum of ln(session + 1), capped"
        return [
            ScoreTerm("earned", float(parts.earned[index]), "", f"transfers, trainings and delay, {counts}"),
            ScoreTerm("time_score", float(parts.time_score[index]), "", uptime),
            ScoreTerm("reduced", float(parts.reduced[index]), "", f"interruptions and unfinished, {counts}"),
            ScoreTerm(
                "strength", float(parts.strength[index]), "", "ln(1 + slots)" if on.strength else "off"
            ),
            ScoreTerm(
                "score",
                float(parts.score[index]),
                "",
                f"(earned + {1 if on.uptime_once else 2}*time_score - reduced + strength) * {settled:.3f}",
            ),
        ]

    def _parts(self, candidates: Candidates) -> _Parts:
        past, w = candidates.known, self.weights
        transfers, delay_total_s, trainings, interruptions, unfinished = self._counts(past)
        delay_s = np.where(transfers > 0, delay_total_s / np.maximum(transfers, 1e-9), 0.0)
        earned = w.transmission * transfers + w.train * trainings - w.delay * delay_s
        time_score = self._time_score(past)
        reduced = interruptions + unfinished
        strength = np.log1p(candidates.slots) if self.repairs.strength else np.zeros(len(candidates))
        uptime = 1 if self.repairs.uptime_once else 2
        score = (earned + uptime * time_score - reduced + strength) / (1 - w.score_old)
        return _Parts(earned, time_score, reduced, strength, score)

    def _counts(self, past: Past) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        if self.repairs.fading:
            r = past.record
            return r.transfers, r.transfer_s, r.trainings, r.interruptions, r.unfinished
        all_time = ("all_trainings", "all_interruptions", "all_unfinished")
        trainings, interruptions, unfinished = (past.number(name) for name in all_time)
        return (
            past.number("transmissions"),
            past.number("delay_total_s"),
            trainings,
            interruptions,
            unfinished,
        )

    def _time_score(self, past: Past) -> Floats:
        cap = self.weights.time_score_cap
        open_s = np.nan_to_num(np.maximum(past.now_s - past.number("session_start_s"), 0), nan=0.0)
        if not self.repairs.steady_uptime:
            printed: Floats = np.minimum(cap, past.number("ended_online_log") + np.log1p(open_s))
            return printed
        ended = past.record.interruptions + past.record.departures
        # The open session hasn't ended, so it adds to the time and not to the sessions.
        mean_session_s = past.record.exposure_s / np.maximum(ended, 1.0)
        steady: Floats = np.minimum(cap, np.log1p(mean_session_s))
        return steady
