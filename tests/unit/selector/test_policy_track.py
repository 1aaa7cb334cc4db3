"""The fading track record: by hand, as laws, and what a first database becomes."""

import math
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from memory_selector import KINDS, MemorySelector, fact

import peerloom.services.selector as package
from peerloom.errors import ConfigurationError
from peerloom.kit.ownership import owner_of
from peerloom.services.selector import tables
from peerloom.services.selector.belief.track import (
    FAILED,
    MET,
    MOST_SUSPICION,
    TRACK,
    Track,
    check_half_life,
    observe,
    open_exposure_s,
    worth,
)
from peerloom.services.selector.policies.survival_model import Priors
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    EvidenceKind,
)

HALF_LIFE_S = 1000.0


def seen(track: Track, kind: EvidenceKind.ValueType, time_s: float, **values: float) -> Track:
    return observe(track, kind, time_s=time_s, half_life_s=HALF_LIFE_S, **values)


def test_a_count_halves_with_each_half_life_and_an_old_fact_counts_by_its_age() -> None:
    track = seen(Track(), EVIDENCE_KIND_TRAINING, 5000.0)
    track = seen(track, EVIDENCE_KIND_TRAINING, 6000.0)
    assert (track.trainings, track.at_s) == (1.5, 6000.0)
    late = seen(track, EVIDENCE_KIND_TRAINING, 4000.0)  # two half-lives before the newest
    assert (late.trainings, late.at_s) == (1.75, 6000.0)


def test_each_kind_of_fact_goes_where_it_belongs() -> None:
    track = seen(Track(), EVIDENCE_KIND_TRANSFER, 1.0, delay_s=2.0, transfer_bytes=300)
    track = seen(track, EVIDENCE_KIND_TRAINING, 1.0, speed_gflops=70.0)
    track = seen(track, EVIDENCE_KIND_TRAINING, 1.0)  # not measured
    track = seen(track, EVIDENCE_KIND_UNFINISHED, 1.0)
    assert (track.transfers, track.transfer_s, track.transfer_bytes) == (1, 2, 300)
    assert (track.trainings, track.speeds, track.speed_total, track.unfinished) == (2, 1, 70, 1)
    ended = seen(track, EVIDENCE_KIND_SESSION_ENDED, 1.0, online_s=1.0)
    assert (ended.departures, ended.interruptions) == (1, 0)


def test_slots_given_are_the_most_at_once_fading_with_age() -> None:
    track = seen(Track(), EVIDENCE_KIND_TRAINING, 1000.0, slots=8)
    track = seen(track, EVIDENCE_KIND_TRAINING, 2000.0, slots=3)  # 8 were a half-life ago
    assert track.slots_given == 4
    assert seen(track, EVIDENCE_KIND_TRAINING, 2000.0, slots=5).slots_given == 5
    assert seen(track, EVIDENCE_KIND_UNFINISHED, 2000.0, slots=9).slots_given == 4


def test_the_exposure_of_a_session_is_the_integral_of_the_weight_over_it() -> None:
    # One half-life long: H / ln 2 * (1 - 1/2); a second later it is worth 2^(-1/1000) of that.
    track = seen(Track(), EVIDENCE_KIND_INTERRUPTION, 2000.0, online_s=HALF_LIFE_S)
    assert track.exposure_s == pytest.approx(1000 / math.log(2) / 2)
    steps = [2.0 ** (-(age + 0.5) / HALF_LIFE_S) for age in range(int(HALF_LIFE_S))]
    assert track.exposure_s == pytest.approx(sum(steps), rel=1e-4)
    still = open_exposure_s(np.array([1000.0, np.nan, 3000.0]), 2000.0, HALF_LIFE_S)
    assert still.tolist() == pytest.approx([track.exposure_s, 0, 0])
    assert worth(np.array([1000.0, 2500.0]), 2000.0, HALF_LIFE_S).tolist() == [0.5, 1.0]


FACTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.floats(0, 1e4), st.floats(0, 1e4)), min_size=1, max_size=12
)


@given(FACTS, st.randoms())
def test_the_order_in_which_facts_arrive_changes_nothing(facts: list[tuple], chance) -> None:  # type: ignore[no-untyped-def,type-arg]  # hypothesis's Random
    def lived(told: list[tuple]) -> list[float]:  # type: ignore[type-arg]  # as above
        track = Track()
        for kind, time_s, online_s in told:
            track = seen(track, kind, time_s, online_s=online_s, speed_gflops=3.0, slots=online_s)
        # Suspicion and the newest speeds are of an order: what came last weighs most.
        unordered = [name for name in TRACK if name != "suspicion" and not name.startswith("recent")]
        return [getattr(track, name) for name in unordered]

    shuffled = list(facts)
    chance.shuffle(shuffled)
    assert lived(shuffled) == pytest.approx(lived(facts), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("half_life_s", [0.0, -1.0, math.nan, math.inf, 59.0])
def test_a_half_life_under_which_sums_are_unbounded_is_refused_with_the_formula(half_life_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"2\^\(-age / half_life\)"):
        check_half_life(half_life_s)


@pytest.mark.parametrize(
    ("address", "labels", "certified", "owner"),
    [
        ("10.0.0.1:7402", {}, "", "host 10.0.0.1"),
        ("10.0.0.1:9999", {"owner": "somebody else"}, "", "host 10.0.0.1"),
        ("127.0.0.1:1", {}, "", "node node-1"),
        ("127.0.0.1:1", {"owner": "ann"}, "", "label ann"),
        ("", {}, "", "node node-1"),
        ("10.0.0.1:7402", {}, "ann", "owner ann"),
        ("10.0.0.1:7402", {}, "registry", "node node-1"),
        ("127.0.0.1:1", {"owner": "bob"}, "ann", "owner ann"),
    ],
)
def test_an_owner_is_whom_the_certificate_says_or_the_host_and_a_node_s_own_word_cannot_split_it(
    address: str, labels: dict[str, str], certified: str, owner: str
) -> None:
    assert owner_of("node-1", address, labels, certified) == owner


async def test_the_service_keeps_tracks_over_a_restart_and_reporters_from_the_future_age_nobody() -> None:
    selector = MemorySelector()
    now_s = selector.clock.wall_s()
    await selector.writer.report([fact("a", slots=3), fact("b", 2)])
    await selector.writer.report([fact("c")])
    again = selector.again()
    await again.writer.load()
    for room in (selector, again):
        assert room.columns.number("trainings").tolist() == [2.0, 1.0]
        assert room.columns.number("slots_given").tolist() == [3.0, 0.0]
        assert room.columns.number("at_s").max() <= now_s


def test_tracks_of_a_first_database_are_made_from_its_evidence() -> None:
    engine = sa.create_engine("sqlite://")
    _migrate(engine, "0001")
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE selector_nodes RENAME TO nodes"))  # its first name
        connection.execute(
            sa.text(
                "INSERT INTO nodes VALUES (1, 'node-a', 'a', '', 0, 1, 0, '{}', '[]', NULL), "
                "(2, 'node-b', 'b', '', 0, 1, 0, '{}', '[]', NULL)"
            )
        )
        connection.execute(
            sa.text(
                "INSERT INTO evidence VALUES ('1', 'node-a', 5, 10.0, 0, 60.0, 0, '', ''), "
                "('2', 'node-a', 1, 20.0, 1.5, 0, 7, '', ''), ('3', 'node-a', 2, 15.0, 0, 0, 0, '', '')"
            )
        )
    _migrate(engine, "head")
    with engine.connect() as connection:
        rows = {row.node_id: row for row in connection.execute(sa.select(tables.tracks))}
    one, nothing = rows["node-a"], rows["node-b"]
    assert (one.at_s, one.exposure_s, one.interruptions, one.trainings) == (20.0, 60.0, 1.0, 1.0)
    assert (one.transfers, one.transfer_s, one.transfer_bytes) == (1.0, 1.5, 7.0)
    assert [getattr(nothing, name) for name in TRACK] == [0.0] * len(TRACK)


def _migrate(engine: sa.Engine, to: str) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    folder = Path(package.__file__).parent / "migrations"
    script = ScriptDirectory(str(folder), version_locations=[str(folder)])
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"fn": lambda rev, _: script._upgrade_revs(to, rev)}
        )
        with Operations.context(context):
            context.run_migrations()


def test_newest_speeds_forget_by_the_measurement_and_sessions_keep_their_logarithms() -> None:
    track = seen(Track(), EVIDENCE_KIND_TRAINING, 0.0, speed_gflops=100.0)
    track = seen(track, EVIDENCE_KIND_TRAINING, 0.0, speed_gflops=10.0)
    # 0.6 * 100 + 10 over 0.6 + 1, where all together have a mean of 55
    assert track.recent_speed_total / track.recent_speeds == pytest.approx(70 / 1.6)
    assert track.machine_gflops == pytest.approx(55)
    for online_s in (math.e - 1, math.e**3 - 1):
        track = seen(track, EVIDENCE_KIND_SESSION_ENDED, 0.0, online_s=online_s)
    assert (track.session_logs, track.session_log_squares) == pytest.approx((1 + 3, 1 + 9))


WORK = st.lists(st.booleans(), max_size=60)


def _after(met: list[bool]) -> Track:
    track = Track()
    for one in met:
        track = seen(track, EVIDENCE_KIND_TRAINING if one else EVIDENCE_KIND_UNFINISHED, 0.0)
    return track


@given(WORK)
def test_three_failures_in_a_row_are_a_change_whatever_came_before(before: list[bool]) -> None:
    """From any record they leave more than the prior and ln(9): it has turned with a chance of 0.9."""
    assert Priors().doubted + math.log(9) < 3 * FAILED < MOST_SUSPICION
    assert _after([*before, False, False, False]).suspicion >= 3 * FAILED - 1e-9


def test_one_failure_of_a_node_that_was_good_is_none() -> None:
    """It has turned with a chance of 1 / (1 + e^4 / 8)."""
    assert 1 / (1 + math.exp(Priors().doubted - _after([True, False]).suspicion)) == pytest.approx(
        0.1278, rel=1e-3
    )


@given(WORK)
def test_suspicion_is_bounded_and_six_requests_met_end_it(before: list[bool]) -> None:
    assert 0 <= _after(before).suspicion <= MOST_SUSPICION
    assert 6 * MET > MOST_SUSPICION
    assert _after([*before, *[True] * 6]).suspicion == 0


@given(WORK)
def test_one_failure_more_never_lowers_suspicion_and_one_request_met_never_raises_it(met: list[bool]) -> None:
    now = _after(met).suspicion
    assert _after([*met, False]).suspicion >= now >= _after([*met, True]).suspicion
