"""What steps with older gradients, or without the last ones, are predicted to take; all figures by hand."""

import pytest

from peerloom.kit.handing_out import ROW_PAUSE_S
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import even_layers
from peerloom.kit.sync_model.prediction import StepPrediction
from peerloom.kit.sync_model.stale_prediction import predicted
from peerloom.kit.sync_model.sync_setting import SyncSetting

FAST, SHARE_S = 1e12, 0.5  # bits/s, in which no message takes time; a rank's equal share of a batch
ONE_SLOW = (1.3, 1.3, 1.3, 0.1)


def of(
    sync: str,
    *,
    ranks: int = 4,
    bits_per_s: float = FAST,
    delay_s: float = 0.0,
    speeds: tuple[float, ...] = (),
) -> StepPrediction:
    network, layers = SyncNetwork.uniform(ranks, bits_per_s, delay_s), even_layers(1_000_000, SHARE_S, 4)
    return predicted(parse_sync("sync", sync), SyncSetting(network, layers, speeds=speeds))


@pytest.mark.parametrize("sync", ["ssp:0", "ssp:1", "asp", "asp,late=weighted"])
def test_equal_ranks_without_messages_take_what_computing_takes(sync: str) -> None:
    assert of(sync).step_s == pytest.approx(SHARE_S, abs=ROW_PAUSE_S)
    assert of(sync, ranks=1).step_s == pytest.approx(SHARE_S, abs=ROW_PAUSE_S)


def test_a_sum_travels_while_the_next_parts_are_computed() -> None:
    """4 MB among four by a ring are 6 MB up and down each: 0.24 s at 200 Mbit/s, and 0.96 s at 50."""
    hidden, shown = of("ssp:2", bits_per_s=2e8), of("ssp:2", bits_per_s=5e7)
    assert (hidden.step_s, hidden.exposed_s) == pytest.approx((SHARE_S, 0.0), abs=2 * ROW_PAUSE_S)
    assert (shown.step_s, shown.exposed_s) == pytest.approx((0.96, 0.46), abs=2 * ROW_PAUSE_S)
    assert shown.sent_bytes == pytest.approx(6e6)
    waiting = of("ssp:0", bits_per_s=2e8)
    assert (waiting.step_s, waiting.exposed_s) == pytest.approx((0.74, 0.24), abs=2 * ROW_PAUSE_S)


@pytest.mark.parametrize(("sync", "step_s"), [("ssp:0", 5.0), ("ssp:1", 5.0), ("ssp:2", 2.5), ("ssp:5", 1.0)])
def test_who_is_slow_may_compute_as_many_steps_long_as_the_bound(sync: str, step_s: float) -> None:
    """Its share takes 0.5 s / 0.1. All together make a batch in 0.5 s, and do so where there is no bound."""
    assert of(sync, speeds=ONE_SLOW).step_s == pytest.approx(step_s, rel=0.02)
    assert of("asp", speeds=ONE_SLOW).step_s == pytest.approx(SHARE_S, rel=0.03)


def test_a_backup_computes_for_nothing_where_all_are_equal_and_spares_the_slow_one() -> None:
    """Three of four take a third of the batch each: 4/3 of an equal share."""
    assert of("backup=0.75").step_s == pytest.approx(4 / 3 * SHARE_S, rel=0.01)
    assert of("backup=0.75", speeds=ONE_SLOW).step_s == pytest.approx(4 / 3 * SHARE_S / 1.3, rel=0.03)


def test_rows_go_round_all_ranks_and_a_step_waits_for_one() -> None:
    """With 50 ms from each to each: three trips there and back for a row, six for two rings at once.

    Rows leave at 0, 0.3 and 0.6 s, 5 ms later each for who computes; the last says what is done at 0.5.
    """
    assert of("asp", delay_s=0.05).step_s == pytest.approx(0.3 + 0.6, abs=0.01)
    assert of("ssp:0", delay_s=0.05).step_s == pytest.approx(0.91 + 0.6, abs=0.01)


def test_what_waits_for_all_is_predicted_as_ever() -> None:
    assert of("bsp-a2a").step_s == pytest.approx(SHARE_S, abs=0.01)
