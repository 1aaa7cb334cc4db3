"""A belief's formula with its figures put in, so that anybody can compute it again by hand."""

from peerloom import BeliefTerms, BeliefWeights


def number(value: float) -> str:
    """At most six decimals, none that are zero at the end."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def in_brief(weights: BeliefWeights) -> list[str]:
    """The formulas over a table's heads, with the weights in force."""
    w, n = weights, number
    return [
        "belief = new + time - reduce",
        f"new    = {n(w.score_old)}*old + {n(w.transmission)}*sent + {n(w.train)}*trained "
        f"- {n(w.delay)}*delay",
        f"time   = min({n(w.time_score_cap)}, sum of ln(online + 1))",
        "reduce = lost + refused - time",
    ]


def explain(terms: BeliefTerms, belief: float) -> list[str]:
    """The formulas (1) to (4), each as names, as figures, and as its result."""
    w, t = terms.weights, terms
    old, sent, trained, late = (
        w.score_old * t.score_old,
        w.transmission * t.transmissions,
        w.train * t.trainings,
        w.delay * t.delay_s,
    )
    n = number
    return [
        *_formula(
            "(1) score_new",
            f"{n(w.score_old)}*score_old + {n(w.transmission)}*transmissions "
            f"+ {n(w.train)}*trainings - {n(w.delay)}*delay",
            f"{n(w.score_old)}*{n(t.score_old)} + {n(w.transmission)}*{t.transmissions} "
            f"+ {n(w.train)}*{t.trainings} - {n(w.delay)}*{n(t.delay_s)}",
            f"{n(old)} + {n(sent)} + {n(trained)} - {n(late)}",
            n(t.score_new),
        ),
        *_formula(
            "(2) time_score",
            f"min({n(w.time_score_cap)}, sum of ln(online + 1))",
            f"min({n(w.time_score_cap)}, {n(t.ended_online_log)} + ln({n(t.open_online_s)} + 1))",
            n(t.time_score),
        ),
        *_formula(
            "(3) score_reduce",
            "interruptions + unfinished - time_score",
            f"{t.interruptions} + {t.unfinished} - {n(t.time_score)}",
            n(t.score_reduce),
        ),
        *_formula(
            "(4) belief",
            "score_new + time_score - score_reduce",
            f"{n(t.score_new)} + {n(t.time_score)} - {_bracketed(t.score_reduce)}",
            n(t.score_new + t.time_score - t.score_reduce),
        ),
        *_lies(t, belief),
    ]


def _lies(terms: BeliefTerms, belief: float) -> list[str]:
    if not terms.lies:
        return []
    printed = number(terms.score_new + terms.time_score - terms.score_reduce)
    price = number(terms.lie_price)
    return _formula(
        "after lies", f"min(belief, -{price}*lies)", f"min({printed}, -{price}*{terms.lies})", number(belief)
    )


def _formula(name: str, *steps: str) -> list[str]:
    first, *others = steps
    return [f"{name:<16} = {first}", *(f"{'':<16} = {step}" for step in others), ""]


def _bracketed(value: float) -> str:
    return f"({number(value)})" if value < 0 else number(value)


def where_figures_come_from(terms: BeliefTerms) -> list[tuple[str, str]]:
    """Each figure that the formulas take from evidence, in words."""
    return [
        ("score_old", f"{number(terms.score_old)}, the belief before this update"),
        ("transmissions", f"{terms.transmissions}, models transferred"),
        ("trainings", f"{terms.trainings}, trainings finished"),
        ("delay", f"{number(terms.delay_s)} s, the mean of all transfers"),
        (
            "online",
            f"{number(terms.ended_online_log)} from periods that have ended, and an open one "
            f"of {number(terms.open_online_s)} s at the update",
        ),
        ("interruptions", f"{terms.interruptions}, periods that ended without notice"),
        ("unfinished", f"{terms.unfinished}, requests refused, not finished or answered wrongly"),
        *([("lies", f"{terms.lies}, proven by others who did its work again")] if terms.lies else []),
    ]
