"""What questions say of "auto": its time beside that of the best way by hand, and how often it chose well."""

import statistics
from collections import Counter
from collections.abc import Sequence

from benchmarks.inference_sweep import WAYS, Questions
from benchmarks.measure import Goal, Measurement, measurement

NEAR = 1.1  # times what the best way takes
SHARE_CHOSEN_WELL = 0.9


def figures(asked: Sequence[Questions]) -> list[Measurement]:
    """A figure for each kind of question, and how often auto chose well beside always the same way."""
    return [*map(_beside_the_best, asked), *_scores(asked)]


def _beside_the_best(questions: Questions) -> Measurement:
    by_hand = questions.by_hand_ms
    best = min(by_hand, key=lambda way: statistics.median(by_hand[way]))
    others = ", ".join(
        f"{way} {statistics.median(by_hand[way]):.3g} ms" if way in by_hand else f"{way} not"
        for way in WAYS
        if way != best
    )
    took = ", ".join(f"{way} {times} times" for way, times in Counter(questions.chosen).items())
    return measurement(
        f"auto, {questions.name}",
        "ms",
        questions.auto_ms,
        goal=Goal(NEAR, at_least=False, of_ratio=True),
        rival=f"the best way by hand, {best} ({others}); auto took {took}",
        rival_samples=by_hand[best],
    )


def _scores(asked: Sequence[Questions]) -> list[Measurement]:
    """Each question counts 1 where a way was chosen that takes at most 1.1 times what the best one does."""
    auto = [float(way in good_ways(one)) for one in asked for way in one.chosen]
    return [
        measurement(
            f"auto chose the best way or one within a tenth of it, beside always {way}",
            "of all questions",
            auto,
            statistic="mean",
            goal=Goal(SHARE_CHOSEN_WELL, at_least=True),
            rival=f"always {way}",
            rival_samples=[float(way in good_ways(one)) for one in asked for _ in one.chosen],
        )
        for way in WAYS
    ]


def good_ways(questions: Questions) -> set[str]:
    """The ways whose median by hand is at most 1.1 times that of the best."""
    taken_ms = {way: statistics.median(samples) for way, samples in questions.by_hand_ms.items()}
    return {way for way, median_ms in taken_ms.items() if median_ms <= NEAR * min(taken_ms.values())}
