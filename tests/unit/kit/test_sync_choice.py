"""What `auto` would take: the fastest by prediction that a quality allows, and when it changes its mind."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import DIRECT, MXFP4, SyncMethod
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import even_layers
from peerloom.kit.sync_model.sync_choice import EXACT, NEAR, RELAXED, candidates, choose_sync, ranked
from peerloom.kit.sync_model.sync_setting import SyncSetting

USUAL = SyncMethod()


def setting(bits_per_s: float = 50e6, delay_s: float = 0.01, parameters: int = 11_000_000) -> SyncSetting:
    return SyncSetting(SyncNetwork.uniform(4, bits_per_s, delay_s), even_layers(parameters, 1.05, 16))


@pytest.mark.parametrize("quality", [EXACT, NEAR, RELAXED])
def test_every_candidate_is_a_method_that_a_job_can_have(quality: str) -> None:
    methods = candidates(quality)
    assert len(set(methods)) == len(methods)
    assert all(parse_sync("METHOD", str(method)) == method for method in methods)


def test_qualities_allow_more_and_more() -> None:
    exact, near, relaxed = (set(candidates(quality)) for quality in (EXACT, NEAR, RELAXED))
    assert exact < near < relaxed
    assert all(method.is_exact for method in exact)
    assert not any(one.rounds.delay or one.rounds.partial for one in relaxed if one.rounds is not None)
    with pytest.raises(InvalidArgumentError, match="did you mean near"):
        candidates("neer")


def test_powersgd_is_relaxed_and_goes_every_way() -> None:
    """Over 5 Mbit/s its factors take a hundredth of the bits: nothing that keeps gradients is faster."""
    found = {one for one in candidates(RELAXED) if one.low_rank}
    assert {one.topology for one in found} == {"ring", "direct", "ps", "doubling"}
    assert not any(one.low_rank for one in candidates(NEAR))
    by_step = [one for one in candidates(RELAXED) if one.rounds is None]
    assert ranked(by_step, setting(5e6))[0].method.codec == "powersgd"


def test_the_fastest_is_taken_and_the_others_are_told_in_order() -> None:
    found = choose_sync(setting(), NEAR)
    assert (found.chosen.method.topology, found.chosen.method.codec) == (DIRECT, MXFP4)
    times = [one.prediction.step_s for one in (found.chosen, *found.others)]
    assert times == sorted(times)
    assert len(times) == len(candidates(NEAR))
    assert str(found.chosen.method) in found.reason


def test_small_messages_over_long_ways_go_directly() -> None:
    """Around a ring of four they take six round trips of 200 ms, directly two trips of 100 ms."""
    found = choose_sync(setting(delay_s=0.1, parameters=6000))
    assert found.chosen.method.topology == DIRECT
    assert found.chosen.prediction.exposed_s == pytest.approx(0.2, abs=0.02)
    ring = next(one for one in found.others if one.method == USUAL)
    assert ring.prediction.exposed_s == pytest.approx(1.2, abs=0.02)


def test_an_incumbent_stays_unless_the_gain_is_over_the_margin() -> None:
    order = ranked(candidates(EXACT), setting())
    best, incumbent = order[0], next(one for one in order if one.method == USUAL)
    gain = 1 - best.prediction.step_s / incumbent.prediction.step_s
    assert gain > 0
    kept = choose_sync(setting(), EXACT, USUAL, margin=gain + 0.001)
    assert (kept.chosen.method, kept.is_change) == (USUAL, False)
    assert "stays" in kept.reason
    changed = choose_sync(setting(), EXACT, USUAL, margin=gain - 0.001)
    assert (changed.chosen.method, changed.is_change) == (best.method, True)
    again = choose_sync(setting(), EXACT, best.method, margin=0.0)
    assert (again.chosen.method, again.is_change) == (best.method, False)


def test_an_incumbent_of_lesser_quality_goes() -> None:
    found = choose_sync(setting(), EXACT, SyncMethod(topology=DIRECT, codec=MXFP4))
    assert found.chosen.method.is_exact
    assert found.is_change


def test_the_choice_does_not_swing_when_the_network_wavers() -> None:
    """Rates up and down by 3 %: after the first choice nothing changes."""
    present, changes = USUAL, 0
    for rate in (50e6, 48.5e6, 51.5e6, 50e6, 51.5e6, 48.5e6):
        found = choose_sync(setting(rate), NEAR, present)
        present, changes = found.chosen.method, changes + found.is_change
    assert changes == 1
