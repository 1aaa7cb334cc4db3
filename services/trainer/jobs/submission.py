"""What a job names and others have to know, looked up before it is taken: policies, artifacts, nodes."""

import asyncio
from collections.abc import Sequence

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.directory import Directory
from peerloom.kit.job_inputs import inputs_of
from peerloom.kit.sync_auto import is_auto
from peerloom.kit.sync_grammar import parse_sync
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.v1.registry_pb2 import GetNodeRequest, ListNodesRequest
from peerloom.v1.selector_pb2 import ListPoliciesRequest
from peerloom.v1.trainer_pb2 import JobSpec

_CALL_S = 5.0


class SubmissionChecks:
    """Asks the selector, the registry and who keeps artifacts. Raises what they say, UnavailableError too."""

    def __init__(self, directory: Directory, distributor: Distributor) -> None:
        self._directory, self._distributor = directory, distributor

    async def check(self, spec: JobSpec) -> None:
        """Raises NotFoundError for the first name of a complete spec that nobody knows, with the nearest.

        And InvalidArgumentError where a spec chooses all nodes that there are as servers.
        """
        if spec.policy:
            await self._check_policy(spec.policy)
        await self._check_nodes(spec)
        for digest in inputs_of(spec):
            await self._distributor.know(digest)

    async def _check_policy(self, policy: str) -> None:
        selector = await self._directory.selector()
        answer = await selector.call(selector.stub.ListPolicies, ListPoliciesRequest(), _CALL_S)
        names = [known.name for known in answer.policies]
        if policy not in names and ":" not in policy:
            raise NotFoundError.of_name("policy", policy, names)

    async def _check_nodes(self, spec: JobSpec) -> None:
        """Who is away may come back, a misspelt one never does."""
        method = parse_sync("spec.sync", "" if is_auto(spec.sync) else spec.sync)
        await asyncio.gather(*(self._check_node(name) for name in method.named_nodes))
        if method.server_nodes:
            await self._check_others(spec.sync, method.server_nodes)

    async def _check_node(self, name: str) -> None:
        registry = self._directory.registry
        await registry.call(registry.stub.GetNode, GetNodeRequest(node=name), _CALL_S)

    async def _check_others(self, text: str, servers: Sequence[str]) -> None:
        registry = self._directory.registry
        request = ListNodesRequest(page_size=len(servers) + 1)
        known = (await registry.call(registry.stub.ListNodes, request, _CALL_S)).nodes
        if known and all({node.spec.name, node.node_id} & set(servers) for node in known):
            limit = f"servers on some of the nodes: all {len(known)} that ever registered are named"
            raise InvalidArgumentError.of_field("spec.sync", text, f"{limit}, which is topology=ps")
