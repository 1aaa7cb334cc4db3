"""The selector's calls: checks requests, translates between messages and our types; decides nothing."""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peerloom.errors import InvalidArgumentError, NotFoundError, UnavailableError
from peerloom.kit import tracing
from peerloom.kit.allowance import Allowances
from peerloom.kit.checks import check_range, check_requirements, check_text, check_timestamp
from peerloom.kit.clock import Clock
from peerloom.kit.database import SqlThread
from peerloom.kit.interceptors import caller
from peerloom.kit.logs import get_logger
from peerloom.kit.metrics import Tally
from peerloom.kit.paging import (
    byte_size,
    decode_token,
    encode_token,
    fill_page,
    foreign_token,
    number_key,
    page_size_of,
)
from peerloom.services.selector.belief.evidence_report import check_report
from peerloom.services.selector.belief.explanations import Explanations
from peerloom.services.selector.belief.lies import check_may_prove
from peerloom.services.selector.belief.movement import counting
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.catalog.columns import FREE, NodeColumns
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.services.selector.choosing.choice import BUSY_HORIZONS, Choice, candidates_of, choose, lies_term
from peerloom.services.selector.choosing.last_choices import LastChoices
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.selector.messages import (
    belief_message,
    choice_message,
    evidence_from_message,
    explained_message,
)
from peerloom.services.selector.policies import POLICIES, find_policy
from peerloom.services.selector.policies.interface import Policy, SelectionRequest
from peerloom.v1 import selector_pb2 as pb
from peerloom.v1.selector_pb2_grpc import SelectorServiceServicer

MAX_BUDGET = 1000
MAX_EXCLUDED = 10_000
MAX_WANTED_SLOTS = 1_000_000
MAX_NAME_CHARACTERS = 64
MAX_HORIZON_S = 1e9
# How long a choice of few, or of nobody, looks for nodes that came just now.
FEW_LIMIT_S, NOBODY_LIMIT_S = 0.5, 5.0
CHOOSING_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
_log = get_logger()


@dataclass(frozen=True)
class SelectorServicer(SelectorServiceServicer):
    """Answers from memory where it chooses, from the database where it explains.

    `reach_present` returns once memory has all that the registry knows by now, which may take so many
    seconds: whether anything was new. `chance` is drawn from by requests that bring no seed; `reporters` is
    how much of whose evidence about which node counts, `chosen_s` how long the selections took.
    """

    columns: NodeColumns
    writer: CatalogWriter
    reach_present: Callable[[float], Awaitable[bool]]
    explanations: Explanations
    sql: SqlThread
    clock: Clock
    chance: np.random.Generator
    default_policy: str
    policies: Mapping[str, Policy] = field(default_factory=lambda: POLICIES)
    half_life_s: float = HALF_LIFE_S
    chosen_s: Tally = field(default_factory=lambda: Tally(CHOOSING_BOUNDS_S))
    last: LastChoices = field(default_factory=LastChoices)
    reporters: Allowances[tuple[str, str]] = field(default_factory=lambda: SelectorConfig().reporters())

    async def SelectNodes(self, request: pb.SelectNodesRequest, context: Any) -> pb.SelectNodesResponse:
        wish = _wish(request)
        policy = self._policy(request.policy)
        now_s, begin_s = self.clock.wall_s(), self.clock.monotonic_s()
        choice = self._choose(request, wish, policy, now_s)
        if len(choice.rows) < wish.budget and await self._more_may_be_known(choice):
            choice = self._choose(request, wish, policy, now_s)
        self.last.note(choice, policy.name, now_s, self.columns)
        until_s = now_s + BUSY_HORIZONS * wish.horizon_s
        self.columns.note_taken(choice.rows, wish.slots, now_s, until_s)
        self.chosen_s.add(self.clock.monotonic_s() - begin_s)
        tracing.note(policy=policy.name, chosen=len(choice.rows))
        return choice_message(choice, self.columns, policy.name)

    def _choose(
        self, request: pb.SelectNodesRequest, wish: SelectionRequest, policy: Policy, now_s: float
    ) -> Choice:
        rng = np.random.default_rng(request.seed) if request.HasField("seed") else self.chance
        return choose(self.columns, wish, policy, rng, now_s=now_s, half_life_s=self.half_life_s)

    async def _more_may_be_known(self, choice: Choice) -> bool:
        """Whether nodes became known that could fill a choice of fewer than were asked for.

        "Nobody" ends a job, so it is said of the present alone; a few are better than none while the registry
        is away.
        """
        try:
            return await self.reach_present(FEW_LIMIT_S if choice.rows else NOBODY_LIMIT_S)
        except UnavailableError:
            if not choice.rows:
                raise
            return False

    async def GetBelief(self, request: pb.GetBeliefRequest, context: Any) -> pb.GetBeliefResponse:
        node_id = self._node_id(request.node)
        policy = self._policy(request.policy)
        explanation = await self.sql.run(self.explanations.of_node, node_id)
        row = self.columns.find(node_id)
        if row is None or explanation is None:
            raise NotFoundError.of_name("node", node_id, ())  # it was forgotten just now
        rows = np.flatnonzero(self.columns.state != FREE)
        seen = candidates_of(self.columns, rows, self.clock.wall_s(), self.half_life_s)
        index = int(np.searchsorted(rows, row))
        terms = policy.explain(seen, SelectionRequest(budget=1), index) + lies_term(seen.known, index)
        return explained_message(explanation, policy.name, terms, self.last.of(row, self.columns))

    async def ListBeliefs(self, request: pb.ListBeliefsRequest, context: Any) -> pb.ListBeliefsResponse:
        size, after = page_size_of(request.page_size), _belief_key(request.page_token)
        found = await self.sql.run(self.explanations.highest_first, size + 1, after)
        beliefs, has_more = fill_page(map(belief_message, found), size, byte_size)
        token = encode_token([beliefs[-1].belief, beliefs[-1].node_id]) if has_more else ""
        return pb.ListBeliefsResponse(beliefs=beliefs, next_page_token=token)

    async def ListBeliefHistory(
        self, request: pb.ListBeliefHistoryRequest, context: Any
    ) -> pb.ListBeliefHistoryResponse:
        node_id = self._node_id(request.node)
        size, before = page_size_of(request.page_size), number_key(request.page_token)
        found = await self.sql.run(self.explanations.newest_first, node_id, size + 1, before)
        updates, has_more = fill_page(map(belief_message, found), size, byte_size)
        token = encode_token(updates[-1].updates) if has_more else ""
        return pb.ListBeliefHistoryResponse(updates=updates, next_page_token=token)

    async def ReportEvidence(
        self, request: pb.ReportEvidenceRequest, context: Any
    ) -> pb.ReportEvidenceResponse:
        for index, one in enumerate(request.evidence):
            check_timestamp(f"evidence[{index}].time", one.time)
        reporter, now_s = caller.get().key, self.clock.monotonic_s()
        evidence = [evidence_from_message(one, self.clock.wall_s(), reporter) for one in request.evidence]
        check_report(evidence)
        check_may_prove((one.kind for one in evidence), caller.get().principal)
        counted = counting(evidence, lambda node_id: self.reporters.take((reporter, node_id), now_s))
        if len(counted) < len(evidence):
            _log.warning("evidence_over_allowance", reporter=reporter, facts=len(evidence) - len(counted))
        return pb.ReportEvidenceResponse(applied=await self.writer.report(counted))

    async def ListPolicies(self, request: pb.ListPoliciesRequest, context: Any) -> pb.ListPoliciesResponse:
        policies = [
            pb.Policy(
                name=name,
                description=policy.description,
                source=policy.source,
                is_default=name == self.default_policy,
            )
            for name, policy in sorted(self.policies.items())
        ]
        return pb.ListPoliciesResponse(policies=policies)

    def _policy(self, name: str) -> Policy:
        check_text("policy", name, high=MAX_NAME_CHARACTERS)
        return find_policy(name or self.default_policy, self.policies)

    def _node_id(self, node: str) -> str:
        check_text("node", node, low=1, high=MAX_NAME_CHARACTERS)
        return self.columns.node_id_of(node)


def _wish(request: pb.SelectNodesRequest) -> SelectionRequest:
    needs = request.requirements
    check_range("request_budget", request.request_budget, 1, MAX_BUDGET)
    check_requirements("requirements", needs)
    check_range("slots", request.slots, 0, MAX_WANTED_SLOTS)
    check_range("horizon_s", request.horizon_s, 0, MAX_HORIZON_S)
    if len(request.excluded_nodes) > MAX_EXCLUDED:
        count, limit = f"{len(request.excluded_nodes)} entries", f"at most {MAX_EXCLUDED} entries"
        raise InvalidArgumentError.of_field("excluded_nodes", count, limit)
    for number, node in enumerate(request.excluded_nodes):
        check_text(f"excluded_nodes[{number}]", node, high=MAX_NAME_CHARACTERS)
    return SelectionRequest(
        budget=request.request_budget,
        min_slots=needs.min_slots,
        accelerator_kind=needs.accelerator_kind,
        labels=dict(needs.labels),
        excluded=frozenset(request.excluded_nodes),
        slots=request.slots,
        horizon_s=request.horizon_s,
    )


def _belief_key(token: str) -> tuple[float, str] | None:
    match decode_token(token):
        case None:
            return None
        case [float(belief), str(node_id)] if math.isfinite(belief):
            return belief, node_id
    raise foreign_token(token)
