"""Whether "auto" chose well, by hand."""

from benchmarks.inference_choice import figures
from benchmarks.inference_sweep import Questions

_SPLIT = ["split"] * 3


def test_a_choice_is_good_where_its_way_takes_at_most_a_tenth_more_than_the_best() -> None:
    """Of the first kind local is best and split near it, of the second only remote leads to an answer."""
    asked = [
        Questions(
            "a", {"local": [10, 10, 99], "split": [11, 11, 11], "remote": [12, 1, 12]}, [5] * 3, _SPLIT
        ),
        Questions("b", {"remote": [7, 7, 7]}, [7] * 3, ["remote", "remote", "split"]),
    ]
    told = figures(asked)
    assert [(one.name, one.value, one.rival_value) for one in told[:2]] == [
        ("auto, a", 5, 10),
        ("auto, b", 7, 7),
    ]
    assert told[0].rival == (
        "the best way by hand, local (remote 12 ms, split 11 ms); auto took split 3 times"
    )
    assert told[1].rival.startswith("the best way by hand, remote (split not, local not)")
    assert [(one.rival, one.value, one.rival_value) for one in told[2:]] == [
        ("always remote", 0.83333, 0.5),
        ("always split", 0.83333, 0.5),
        ("always local", 0.83333, 0.5),
    ]
