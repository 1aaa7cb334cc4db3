"""What answers took lately, by the size of their batch."""

from peerloom.inference.client.recent_times import RecentTimes


def test_the_median_of_the_last_nine_of_about_that_size_counts_for_half_a_minute() -> None:
    """4 to 7 samples are about the same, 8 are more; of eleven answers the first two are forgotten."""
    times = RecentTimes()
    assert times.median_s(4, now_s=0.0) is None
    for second in range(11):
        times.note(4, float(second), now_s=float(second))
    assert times.median_s(7, now_s=10.0) == 6.0
    assert times.median_s(8, now_s=10.0) is None
    assert times.median_s(4, now_s=38.5) == 9.5, "those of the seconds 9 and 10"
    assert times.median_s(4, now_s=40.0) is None
