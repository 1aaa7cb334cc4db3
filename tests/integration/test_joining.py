"""A newcomer catches up: the others train on, and all have the same parameters afterwards.

Real processes, a real hub, real sockets. A donor gives its copy only after so many further steps: that
steps are committed meanwhile is no matter of speed.
"""

import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.entry_hub import EntryHub

DEADLINE_S = 100
SCRIPT = Path(__file__).parent / "joining_member.py"
LARGE = 2048  # a square layer of 17 MB; with its momentum a state of 34 MB, far more than a socket's buffers
SMALL = 600  # 1.4 MB: enough to catch up with
pytestmark = pytest.mark.timeout(240)


class Member:
    """One process and what it said."""

    def __init__(self, hub: EntryHub) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(hub.path)],
            env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard: queue.Queue[Any] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.steps: list[int] = []
        self.is_busy = True

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._heard.put(json.loads(line))

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self, expected: str) -> Any:
        """The next answer that has it as a key; steps are noted on the way."""
        while True:
            answer = self._heard.get(timeout=DEADLINE_S)
            if isinstance(answer, dict) and "step" in answer:
                self.steps.append(answer["step"])
            if isinstance(answer, str) or "broken" in answer or "finished" in answer:
                self.is_busy = False
            if answer == expected or (isinstance(answer, dict) and expected in answer):
                return answer

    def end(self) -> None:
        self.process.kill()
        self._listener.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


class MemberPool:
    """Members, which go on to the next test if they are at rest, and the hub that they meet through."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.hub = EntryHub(Path(self._folder.name) / "hub")
        self.members = [Member(self.hub) for _ in range(4)]
        self._generations = itertools.count(1)
        for member in self.members:
            member.hear("started")

    def end(self) -> None:
        for member in self.members:
            member.end()
        self.hub.close()
        self._folder.cleanup()

    def start(self, *settings: dict[str, Any]) -> list[Member]:
        """A member with each of these settings, which knows nothing yet."""
        chosen = self.members[: len(settings)]
        for member, setting in zip(chosen, settings, strict=True):
            member.steps = []
            member.say(fresh=setting)
        for member in chosen:
            member.hear("ready")
        return chosen

    def renew(self) -> None:
        """Replaces those that still work, or have died."""
        for i, member in enumerate(self.members):
            if member.is_busy or member.process.poll() is not None:
                member.end()
                self.members[i] = Member(self.hub)
        for member in self.members:
            if member.is_busy:
                member.hear("started")

    def work(self, members: list[Member], step_s: float = 1e-9, **more: Any) -> None:
        """All of them form a generation, ranked in this order; the default makes newcomers catch up."""
        generation = next(self._generations)
        common = {"generation": generation, "world_size": len(members)}
        for rank, member in enumerate(members):
            member.is_busy = True
            member.say(work={**common, "rank": rank, "step_s": step_s, **more})

    def begin(self, old: list[Member], until: int) -> None:
        """These commit `until` steps as a generation and leave it."""
        self.work(old, leave_at=until, newcomers=0)
        assert [member.hear("broken")["broken"] for member in old] == [until] * len(old)


@pytest.fixture(scope="module")
def town() -> Iterator[MemberPool]:
    pool = MemberPool()
    yield pool
    pool.end()


@pytest.fixture
def pool(town: MemberPool) -> MemberPool:
    town.renew()
    return town


def check_same(members: list[Member], are_rounds: bool = False) -> list[Any]:
    """All finished with the same parameters and optimiser, and saw the same epochs; the last one's answer.

    After rounds they have the same buffers too; after a step each has those of its own samples.
    """
    ends = [member.hear("finished") for member in members]
    assert len({end["finished"] for end in ends}) == 1
    assert len({end["fingerprint"] for end in ends}) == 1
    assert all(end["epochs"] == ends[0]["epochs"] for end in ends)
    assert not are_rounds or all(end["buffers"] == ends[0]["buffers"] for end in ends)
    return ends[0]["epochs"]  # type: ignore[no-any-return]  # what was said


def test_the_others_commit_steps_while_a_large_state_travels(pool: MemberPool) -> None:
    """Entry after step 4, state not before step 8, over the end of an epoch (6 steps): 4 steps are kept."""
    *old, newcomer = pool.start(*[{"width": LARGE, "epochs": 3}] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=8)
    assert newcomer.hear("entered") == {"entered": 4, "catches_up": True, "newcomers": 1, "source": 0}
    assert old[0].hear("entered")["catches_up"] is False
    admitted = newcomer.hear("admitted")
    assert admitted["admitted"] >= 9
    assert admitted["kept"] >= 4
    epochs = check_same([*old, newcomer])
    assert [epoch for epoch, _, _ in epochs] == [1, 2, 3]
    assert [member.steps for member in old] == [list(range(1, 19))] * 2, "no step twice, none left out"


@pytest.mark.parametrize(
    ("sync", "period", "epochs"),
    [
        ("codec=int4", 1, 3),
        ("codec=int4,period=2,outer=nesterov:1.0:0.6", 2, 6),
        ("period=4", 4, 10),
        ("codec=int8,period=4,delay=1", 4, 10),
        ("period=4,groups=2:1", 4, 10),
        ("period=4,partial=2:1,codec=2bit", 4, 10),
        ("period=4,partial=2:1:1,codec=2bit", 4, 10),
    ],
)
def test_a_newcomer_replays_sums_that_were_encoded(
    pool: MemberPool, sync: str, period: int, epochs: int
) -> None:
    """It owns a part of each sum from its entry on, and comes to the others' parameters bit by bit.

    Rounds of local steps, 18 and 20 of them, are replayed as steps are, by the outer optimiser.
    """
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": epochs, "sync": sync}] * 3)
    pool.begin(old, until=4 * period)
    pool.work([*old, newcomer], gate_step=8 * period)
    admitted = newcomer.hear("admitted")
    assert (admitted["admitted"] > 8 * period, admitted["kept"] >= 4) == (True, True)
    check_same([*old, newcomer], are_rounds="period" in sync)


@pytest.mark.parametrize("delay", [0, 1])
def test_a_worker_that_dies_in_a_round_costs_the_others_that_round_and_no_more(
    pool: MemberPool, delay: int
) -> None:
    """Three rounds of two batches an epoch; the third worker dies in its fourth batch, in round 2.

    With a delay it computes that while the first round is exchanged.
    """
    sync = f"period=2,outer=nesterov:1.0:0.6,codec=int8,delay={delay}"
    setting = {"width": SMALL, "epochs": 3, "sync": sync}
    *others, dies = pool.start(setting, setting, {**setting, "stops_at": 4})
    pool.work([*others, dies], newcomers=0)
    dies.hear("stops_at")
    for member in others:
        member.hear("step")  # the first round is committed
    dies.process.kill()
    for member in others:
        member.say(**{"break": True})
        assert member.hear("broken")["broken"] == 2
    pool.work(others, newcomers=0)
    assert [epoch for epoch, _, _ in check_same(others, are_rounds=True)] == [1, 2, 3]
    assert [member.steps for member in others] == [[*range(2, 19, 2)]] * 2, "no round twice, none left out"


def test_of_equal_steps_the_first_one_s_parameters_count(pool: MemberPool) -> None:
    """The one left behind has made its four steps alone, and normalised each batch as a whole."""
    *old, left_behind = pool.start(*[{"width": SMALL, "epochs": 2}] * 3)
    pool.begin(old, until=4)
    pool.begin([left_behind], until=4)
    pool.work([*old, left_behind])
    assert [member.hear("entered")["newcomers"] for member in (*old, left_behind)] == [1] * 3
    check_same([*old, left_behind])


def test_two_newcomers_catch_up_at_once_each_from_its_own_donor(pool: MemberPool) -> None:
    """The task has a schedule, clipping and a scale, and all come to the same state of these."""
    everybody = pool.start(*[{"width": SMALL, "epochs": 6, "whole": True}] * 4)
    pool.begin(everybody[:2], until=2)
    pool.work(everybody, gate_step=5)
    assert [member.hear("entered")["newcomers"] for member in everybody] == [2] * 4
    check_same(everybody)


def test_a_state_that_travels_in_less_than_half_a_step_is_broadcast(pool: MemberPool) -> None:
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": 2}] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], step_s=1e9)
    assert newcomer.hear("entered") == {"entered": 4, "catches_up": False, "newcomers": 0, "source": 0}
    check_same([*old, newcomer])


def test_who_made_the_newest_step_is_the_one_that_tells_of_it(pool: MemberPool) -> None:
    """Rank 0 is a step behind, as its group broke in the step that the other one left after."""
    behind, ahead, newcomer = pool.start(*[{"width": SMALL, "epochs": 2}] * 3)
    pool.begin([behind, ahead], until=3)
    pool.begin([ahead], until=4)
    pool.work([behind, ahead, newcomer], step_s=1e9)
    assert [member.hear("entered")["source"] for member in (behind, ahead, newcomer)] == [1] * 3
    check_same([behind, ahead, newcomer])


def test_a_newcomer_that_comes_after_the_last_step_gets_a_broadcast(pool: MemberPool) -> None:
    """Only the last epoch is still to be measured."""
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": 2}] * 3)
    pool.begin(old, until=12)
    pool.work([*old, newcomer])
    assert newcomer.hear("entered") == {"entered": 12, "catches_up": False, "newcomers": 0, "source": 0}
    check_same([*old, newcomer])


@pytest.mark.parametrize(
    ("setting", "gate_step"),
    [
        pytest.param({"memory_bytes": 3_000_000}, 0, id="memory for two gradients only"),
        pytest.param({"spoils": True}, 5, id="parameters that came out different"),
        pytest.param({}, 1_000, id="the training is over before the state has come"),
    ],
)
def test_a_newcomer_that_cannot_catch_up_gets_a_broadcast(
    pool: MemberPool, setting: dict[str, Any], gate_step: int
) -> None:
    common = {"width": SMALL, "epochs": 2}
    *old, newcomer = pool.start(common, common, {**common, **setting})
    pool.begin(old, until=2)
    pool.work([*old, newcomer], gate_step=gate_step or 1_000)
    assert newcomer.hear("entered")["catches_up"]
    assert newcomer.hear("admitted")["admitted"] <= 12
    check_same([*old, newcomer])


def test_a_newcomer_that_dies_while_it_catches_up_costs_no_step(pool: MemberPool) -> None:
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": 20_000, "memory_bytes": 10**12}] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=1_000_000)
    assert newcomer.hear("entered")["catches_up"]
    newcomer.hear("step")
    newcomer.process.kill()
    reached = []
    for member in old:
        member.say(**{"break": True})
        reached.append(member.hear("broken")["broken"])
    assert max(reached) - min(reached) <= 1
    ahead = sorted(old, key=lambda member: -reached[old.index(member)])
    pool.work(ahead, leave_at=max(reached) + 5)
    assert [member.hear("broken")["broken"] for member in ahead] == [max(reached) + 5] * 2


def test_a_donor_that_dies_is_replaced_by_another(pool: MemberPool) -> None:
    """The last member gives; it is killed in the middle. The newcomer has nothing yet, and begins anew."""
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": 20_000, "memory_bytes": 10**12}] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=1_000_000)
    newcomer.hear("step")
    old[1].process.kill()
    for member in (old[0], newcomer):
        member.say(**{"break": True})
    reached = old[0].hear("broken")["broken"]
    assert newcomer.hear("broken")["broken"] == 0, "what it has recorded is not a state"
    pool.work([old[0], newcomer], gate_step=reached + 3)
    assert newcomer.hear("entered") == {"entered": reached, "catches_up": True, "newcomers": 1, "source": 0}
    assert newcomer.hear("admitted")["kept"] >= 3


LOOP = {"width": 12, "epochs": 3, "script": True, "registers": True, "micro_batch": 1}


def test_a_loop_whose_worker_dies_makes_the_batch_again_and_ends_as_one_process(pool: MemberPool) -> None:
    """One of three dies in the second piece of step 4; another joins for the rest of the 18 steps.

    Another has made its model of another seed, and begins with rank 0's all the same. What the
    script has registered says on all, the newcomer too, that each step was made once.
    """
    *others, dies, newcomer = pool.start(LOOP, {**LOOP, "begins_with": 2}, {**LOOP, "stops_at": 8}, LOOP)
    pool.work([*others, dies], newcomers=0)
    dies.hear("stops_at")
    for member in others:
        while 3 not in member.steps:
            member.hear("step")
    dies.process.kill()
    for member in others:
        member.say(**{"break": True})
        assert member.hear("broken")["broken"] == 3
    pool.work([*others, newcomer])
    assert newcomer.hear("entered") == {"entered": 3, "catches_up": False, "newcomers": 0, "source": 0}
    told = [member.hear("counted") for member in (*others, newcomer)]
    assert [(each["counted"], each["rank"], each["size"]) for each in told] == [
        (18, rank, 3) for rank in range(3)
    ]
    together = [member.hear("finished") for member in (*others, newcomer)]
    assert len({end["finished"] for end in together}) == len({end["fingerprint"] for end in together}) == 1

    pool.renew()
    (single,) = pool.start({**LOOP, "micro_batch": None})
    pool.work([single], newcomers=0)
    assert single.hear("counted") == {"counted": 18, "of_batches": 18, "rank": 0, "size": 1}
    alone = single.hear("finished")
    for one, other in zip(alone["parameters"], together[0]["parameters"], strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


def test_shards_of_a_worker_that_dies_are_read_on_by_the_others(pool: MemberPool) -> None:
    """One of two dies in step 8, in the second epoch; what it has read and not committed is read again."""
    shelves = {"width": 12, "epochs": 3, "script": True, "streams": True}
    lives, dies = pool.start(shelves, {**shelves, "stops_at": 8})
    pool.work([lives, dies], newcomers=0)
    dies.hear("stops_at")
    while 7 not in lives.steps:
        lives.hear("step")
    dies.process.kill()
    lives.say(**{"break": True})
    assert lives.hear("broken")["broken"] == 7
    pool.work([lives], newcomers=0)
    broken = lives.hear("finished")
    assert lives.steps == list(range(1, 19))

    pool.renew()
    (single,) = pool.start(shelves)
    pool.work([single], newcomers=0)
    alone = single.hear("finished")
    for one, other in zip(alone["parameters"], broken["parameters"], strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-5)


def test_a_loop_catches_up_while_the_others_train_on(pool: MemberPool) -> None:
    """What it computes meanwhile counts nothing, so its own steps begin after the entry."""
    *old, newcomer = pool.start(*[{"width": SMALL, "epochs": 3, "script": True}] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=8)
    assert newcomer.hear("entered") == {"entered": 4, "catches_up": True, "newcomers": 1, "source": 0}
    admitted = newcomer.hear("admitted")["admitted"]
    assert admitted >= 9
    assert newcomer.hear("counted")["counted"] == 18 - admitted
    assert [epoch for epoch, _, _ in check_same([*old, newcomer])] == [1, 2, 3]


def test_a_loop_that_one_leaves_ends_for_all_and_a_newcomer_has_the_state(pool: MemberPool) -> None:
    """After step 9 of 18; the newcomer hasn't got the state by then, and has it from a broadcast."""
    setting = {"width": SMALL, "epochs": 3, "script": True}
    *old, newcomer = pool.start(setting, {**setting, "leaves_after": 9}, setting)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=1_000_000)
    assert newcomer.hear("entered") == {"entered": 4, "catches_up": True, "newcomers": 1, "source": 0}
    assert [member.hear("counted")["counted"] for member in (*old, newcomer)] == [9, 9, 0]
    assert [epoch for epoch, _, _ in check_same([*old, newcomer])] == [1]


def test_a_newcomer_replays_steps_in_which_an_optimiser_rested(pool: MemberPool) -> None:
    """Each second step from its entry on; its own script, which counts nothing meanwhile, names the same."""
    game = {"width": 60_000, "epochs": 3, "script": True, "plays": True, "begins_with": 5}
    *old, newcomer = pool.start(*[game] * 3)
    pool.begin(old, until=4)
    pool.work([*old, newcomer], gate_step=8)
    assert newcomer.hear("entered") == {"entered": 4, "catches_up": True, "newcomers": 1, "source": 0}
    assert newcomer.hear("admitted")["kept"] >= 4
    assert [member.hear("ended_at")["ended_at"] for member in (*old, newcomer)] == [18] * 3
    check_same([*old, newcomer])


def test_two_models_with_an_optimiser_each_are_trained_together_as_alone(pool: MemberPool) -> None:
    """A third worker joins after step 4, and one leaves the loop after step 11."""
    game = {"epochs": 3, "script": True, "plays": True, "begins_with": 5}
    *old, newcomer = pool.start(game, {**game, "leaves_after": 11}, {**game, "begins_with": 6})
    pool.begin(old, until=4)
    pool.work([*old, newcomer])
    assert [member.hear("ended_at")["ended_at"] for member in (*old, newcomer)] == [11] * 3
    together = [member.hear("finished") for member in (*old, newcomer)]
    assert len({(end["finished"], end["fingerprint"]) for end in together}) == 1

    pool.renew()
    (single,) = pool.start({**game, "leaves_after": 11})
    pool.work([single], newcomers=0)
    assert single.hear("ended_at") == {"ended_at": 11, "rank": 0}
    alone = single.hear("finished")["parameters"]
    for one, other in zip(alone, together[0]["parameters"], strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)
