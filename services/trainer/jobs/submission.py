"""What a job names and others have to know, looked up before it is taken: policies, artifacts, nodes."""

import asyncio

from peerloom.errors import NotFoundError
from peerloom.kit.directory import Directory
from peerloom.kit.job_inputs import inputs_of
from peerloom.kit.sync_auto import is_auto
from peerloom.kit.sync_grammar import parse_sync
from peerloom.services.trainer.models.distributing import Distributor
from peerloom.v1.registry_pb2 import GetNodeRequest
from peerloom.v1.selector_pb2 import ListPoliciesRequest
from peerloom.v1.trainer_pb2 import JobSpec

_CALL_S = 5.0


class SubmissionChecks:
    """Asks the selector, the registry and who keeps artifacts. Raises what they say, UnavailableError too."""

    def __init__(self, directory: Directory, distributor: Distributor) -> None:
        self._directory, self._distributor = directory, distributor

    async def check(self, spec: JobSpec) -> None:
        """Raises NotFoundError for the first name of a complete spec that nobody knows, with the nearest."""
        if spec.policy:
            await self._check_policy(spec.policy)
        await asyncio.gather(*(self._check_node(name) for name in sited_nodes(spec)))
        for digest in inputs_of(spec):
            await self._distributor.know(digest)

    async def _check_policy(self, policy: str) -> None:
        selector = await self._directory.selector()
        answer = await selector.call(selector.stub.ListPolicies, ListPoliciesRequest(), _CALL_S)
        names = [known.name for known in answer.policies]
        if policy not in names and ":" not in policy:
            raise NotFoundError.of_name("policy", policy, names)

    async def _check_node(self, name: str) -> None:
        registry = self._directory.registry
        await registry.call(registry.stub.GetNode, GetNodeRequest(node=name), _CALL_S)


def sited_nodes(spec: JobSpec) -> tuple[str, ...]:
    """The nodes that a complete spec's sites name: who is away may come back, a misspelt one never does."""
    if is_auto(spec.sync) or not spec.sync:
        return ()
    return tuple(node for site in parse_sync("spec.sync", spec.sync).sites for node in site)
