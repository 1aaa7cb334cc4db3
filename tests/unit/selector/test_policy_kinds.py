"""Each policy by itself: against brute force, by hand, and what is refused."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_selector import MemorySelector, entry, fact, node_id

from benchmarks.flaws import DAY_S, T0, Life, columns_of, crowd, score
from peerloom.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from peerloom.services.selector.belief.formula import Reputation, Weights, update
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.choosing.choice import Choice, candidates_of, choose
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.selector.policies import POLICIES, find_policy, load_policy
from peerloom.services.selector.policies.gang_choice import best_gang
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.services.selector.policies.survival_model import Outlook, Priors, outlook
from peerloom.services.selector.policies.thesis_fixed import Repairs, ThesisFixedPolicy
from peerloom.services.selector.policies.trials import Trials
from peerloom.v1 import selector_pb2
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING

END_S = T0 + DAY_S


def chosen(columns: NodeColumns, policy: str, seed: int = 1, **request: int) -> Choice:
    rng = np.random.default_rng(seed)
    choice = choose(
        columns, SelectionRequest(**{"budget": 4, **request}), find_policy(policy), rng, now_s=END_S
    )  # type: ignore[arg-type]  # fields by name
    columns.note_asked(np.array(choice.rows, np.intp))
    return choice


def test_hazard_acceptance_and_speed_by_hand() -> None:
    """A day online in two sessions that broke off, two trainings at 80, one refusal; seen as it ends.

    Two sessions and half a typical one of 12 h: the logarithms' mean is ln(43,201), their variance 0.5 * 2^2
    / 2.5 = 0.8, so the shape is pi / sqrt(3 * 0.8) = 2.0279. None is open. On this node, which is the
    typical one, the job lasts its 1,800 s.
    """
    life = Life("10.0.0.1:1").session(DAY_S / 2, 0.0, notice=False).session(DAY_S / 2, 0.0, notice=False)
    life.works(2, 1, gflops=80.0)
    seen = candidates_of(columns_of([life]), np.arange(1), END_S, 1e15)
    view = outlook(seen, Priors(spread=2.0), 1800.0)
    shape = math.pi / math.sqrt(2.4)
    risk = math.log1p((1801 / 43_201) ** shape) - math.log1p((1 / 43_201) ** shape)
    assert view.lasts_s[0] == pytest.approx(1800.0)
    assert view.hazard[0] == pytest.approx(risk / 1800, rel=0.05)  # the first has faded half a day
    # The last one was refused: it has turned with a chance of 1 / (1 + e^4 / 8), and would meet a tenth.
    turned = 8 / (8 + math.exp(4.0))
    accepts = (9.5 + 2) / (10 + 3)
    assert view.acceptance[0] == pytest.approx((1 - turned) * accepts + turned * 0.1, rel=0.01)
    assert view.speed[0] == pytest.approx(80.0)


NUMBERS = st.lists(
    st.tuples(st.floats(0.1, 10), st.integers(1, 4), st.floats(0.1, 1), st.floats(1e-6, 1e-2)),
    min_size=1,
    max_size=7,
)


# One that is sure to finish beside one of two that add more: who takes what adds most takes both of these.
SURE = [(1.0, 1, 1.0, 0.0078125), (1.0, 4, 0.5, 0.0078125), (1.0, 4, 0.5, 0.0078125)]


@settings(max_examples=150)
@example(SURE, 2, 3)
@given(NUMBERS, st.integers(1, 4), st.sampled_from([0, 3]))
def test_a_set_is_not_far_from_the_best_of_all_sets(
    nodes: list[tuple[float, int, float, float]], budget: int, slots: int
) -> None:
    for hazard_factor, worst in ((1e-6, 0.95), (1.0, 0.85)):
        view = _view(nodes, hazard_factor)
        gang = best_gang(view, np.ones(len(nodes), np.bool_), budget, slots)
        sets = itertools.chain.from_iterable(
            itertools.combinations(range(len(nodes)), size) for size in range(1, budget + 1)
        )
        best = max(_value(view, members, slots) for members in sets)
        assert gang.value <= _value(view, tuple(gang.members.tolist()), slots) * (1 + 1e-9)
        assert gang.value >= worst * best * (1 - 1e-6)


def _view(nodes: list[tuple[float, int, float, float]], hazard_factor: float) -> Outlook:
    pace, slots, acceptance, hazard = (np.array(column, np.float64) for column in zip(*nodes, strict=True))
    zero = np.zeros(len(nodes))
    return Outlook(hazard * hazard_factor, acceptance, pace, zero, zero, pace, slots, zero + 600.0, 60.0)


def _value(view: Outlook, members: tuple[int, ...], slots: int) -> float:
    rows = list(members)
    gain = view.gain[rows].sum()
    return float(
        view.pace[rows].min()
        * (min(gain, slots) if slots else gain)
        * (1 - view.fails[rows].prod())
        / (1 + view.losses[rows].sum())
    )


def test_a_slow_node_is_left_out_where_it_would_slow_all_others() -> None:
    fast = [Life(f"10.0.0.{n}:1").works(9, gflops=100.0) for n in range(3)]
    columns = columns_of([*fast, Life("10.0.0.9:1").works(9, gflops=10.0)])
    columns.selections = 1  # the first selection is a trial
    assert sorted(chosen(columns, "survival").rows) == [0, 1, 2]


def test_survival_says_for_each_node_why() -> None:
    columns = columns_of([*crowd(3), Life("10.2.0.1:1")])
    choice = chosen(columns, "survival")
    assert len(choice.rows) == 4
    assert choice.reasons[0].startswith("in the set with the most expected work")
    assert choice.reasons[-1] == "a trial, one turn an owner: its owner was never asked"


@pytest.mark.parametrize("name", list(Priors.__dataclass_fields__))
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_priors_that_are_no_numbers_or_make_the_score_unbounded_are_refused_with_the_formula(
    name: str, value: float
) -> None:
    with pytest.raises(ConfigurationError, match="the hazard of sessions") as refused:
        replace(Priors(), **{name: value}).check()
    assert name in refused.value.message


@pytest.mark.parametrize("trials", [Trials(0.0), Trials(math.nan), Trials(0.5, 0.1), Trials(0.5, 2.0)])
def test_shares_of_trials_that_never_come_are_refused(trials: Trials) -> None:
    with pytest.raises(ConfigurationError, match="1 / share"):
        trials.check()


def test_configured_policies_carry_their_settings() -> None:
    policies = SelectorConfig(survival_horizon_s=60.0, trial_share=0.2).policies()
    assert set(policies) == set(POLICIES)
    with pytest.raises(ConfigurationError, match="horizon_s"):
        SelectorConfig(survival_horizon_s=0.0).policies()
    with pytest.raises(ConfigurationError, match="half-life"):
        SelectorConfig(half_life_days=0.0).half_life_s()


def test_without_repairs_thesis_fixed_is_what_the_printed_recursion_settles_at() -> None:
    """Nothing new happens but updates, so the belief runs into its fixed point: no more facts, weight 0.3."""
    weights = Weights(train=0.0)
    reputation = Reputation(
        transmissions=3, delay_total_s=0.6, ended_online_log=4.0, interruptions=2, unfinished=1
    )
    for _ in range(60):
        reputation, _ = update(reputation, EVIDENCE_KIND_TRAINING, weights)
    columns = NodeColumns()
    columns.put(entry(1))
    columns.set_record(node_id(1), reputation, Life("").track)
    seen = candidates_of(columns, np.arange(1), END_S, HALF_LIFE_S)
    policy = ThesisFixedPolicy(Repairs.only([]), weights)
    assert policy.explain(seen, SelectionRequest(1), 0)[-1].value == pytest.approx(reputation.belief)


def test_each_repair_of_the_thesis_can_be_had_alone_and_changes_something() -> None:
    life = Life("10.0.0.1:1", 4).session(100.0, 0.0, notice=True).session(9.0, 0.0, notice=False).works(3)
    plain = score("thesis-fixed:", life, END_S + 9 * DAY_S)
    for repair in ("fading", "uptime-once", "steady-uptime", "strength"):
        assert score(f"thesis-fixed:{repair}", life, END_S + 9 * DAY_S) != pytest.approx(plain), repair
    with pytest.raises(NotFoundError, match="Did you mean fading"):
        find_policy("thesis-fixed:fadin")
    with pytest.raises(NotFoundError, match="no policy 'thesis:fading'"):
        find_policy("thesis:fading")


def test_round_robin_asks_everybody_before_anybody_twice() -> None:
    columns = columns_of([Life(f"10.0.0.{n}:1") for n in range(10)])
    rounds = [chosen(columns, "round-robin").rows for _ in range(5)]
    assert rounds == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]


def test_beta_by_hand() -> None:
    life = Life("10.0.0.1:1").works(3, 1)  # (3 + 1) / (3 + 1 + 2)
    assert score("beta", life, T0) == pytest.approx(4 / 6)


def test_ants_follow_the_scent_and_still_find_others() -> None:
    columns = columns_of([Life("10.0.0.1:1").works(5), *(Life(f"10.0.1.{n}:1") for n in range(3))])
    firsts = Counter(chosen(columns, "aco", seed, budget=1).rows[0] for seed in range(400))
    assert firsts[0] > 300
    assert sum(firsts.values()) - firsts[0] > 0


def test_the_swarm_finds_the_best_set_among_few() -> None:
    columns = columns_of([Life(f"10.0.0.{n}:1", 1 + n).works(2) for n in range(12)])
    found = [set(chosen(columns, "pso", seed, budget=2).rows) == {10, 11} for seed in range(20)]
    assert sum(found) >= 15  # chance finds it in one of 66


class Shortest:
    """A user's own policy: the first rows."""

    name, description, source = "own", "the first", "this test"

    def select(self, candidates, request, rng):  # type: ignore[no-untyped-def]  # as a user may write it
        from peerloom.services.selector.policies.interface import Selection

        count = min(request.budget, len(candidates))
        return Selection(np.arange(count), ["first"] * count)

    def explain(self, candidates, request, index):  # type: ignore[no-untyped-def]  # as above
        return []


def test_a_policy_of_one_s_own_is_loaded_by_module_and_class_and_only_by_the_selector_s_owner() -> None:
    path = f"{Shortest.__module__}:Shortest"
    policies = SelectorConfig(own_policies=(path,)).policies()
    assert find_policy("own", policies).name == "own"
    with pytest.raises(NotFoundError):
        find_policy(path, policies)  # a request can't have code loaded


@pytest.mark.parametrize("path", ["nowhere:X", "math:nothing", "math", "builtins:dict"])
def test_what_is_no_policy_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError):
        load_policy(path)


async def test_a_belief_is_explained_with_the_score_and_the_last_choices() -> None:
    selector = MemorySelector()
    for number in range(3):
        await selector.writer.report([fact(f"seen {number}", number)])
        selector.columns.put(entry(number, address=f"10.0.0.{number}:1"))
    servicer = selector.servicer()

    async def explain(number: int) -> selector_pb2.GetBeliefResponse:
        request = selector_pb2.GetBeliefRequest(node=node_id(number), policy="survival")
        return await servicer.GetBelief(request, None)

    assert list((await explain(1)).choices) == []
    first = selector_pb2.SelectNodesRequest(request_budget=1, excluded_nodes=[node_id(0), node_id(2)])
    await servicer.SelectNodes(first, None)
    second = selector_pb2.SelectNodesRequest(request_budget=1, excluded_nodes=[node_id(1)], seed=1)
    picked = (await servicer.SelectNodes(second, None)).nodes[0].node_id
    (other,) = {0, 2} - {int(picked.removeprefix("node-"), 16)}
    found = await explain(1)
    assert [(c.chosen, c.policy) for c in found.choices] == [(False, "thesis"), (True, "thesis")]
    assert found.choices[0].reason == "it was no candidate: excluded by the request"
    assert " of 2 candidates; the chosen have " in (await explain(other)).choices[0].reason
    names = ["hazard", "acceptance", "speed", "transfer", "delay", "slots", "gain", "score"]
    assert [term.name for term in found.score_terms] == names
    assert all(term.evidence for term in found.score_terms)
    with pytest.raises(InvalidArgumentError, match="horizon_s"):
        await servicer.SelectNodes(selector_pb2.SelectNodesRequest(request_budget=1, horizon_s=-1), None)
