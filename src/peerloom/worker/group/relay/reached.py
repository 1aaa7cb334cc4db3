"""Where other workers reach a port of this one: its node's agent says so, on a node behind NAT."""

import asyncio

from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.dialing import Dialer
from peerloom.v1.node_agent_pb2 import ForwardPortRequest
from peerloom.worker.assignment import Assignment
from peerloom.worker.own_identity import own_identity


def forwarded(assignment: Assignment, port: int) -> str:
    """host:port for others, asked of the agent anew: it is another one after a tunnel was lost.

    Raises UnavailableError when there is no way in just now.
    """

    async def ask() -> str:
        async with Dialer(own_identity(assignment)).node_agent(assignment.agent_address) as agent:
            answer = await agent.call(agent.stub.ForwardPort, ForwardPortRequest(port=port))
            return answer.address

    try:
        return asyncio.run(ask())
    except PeerloomError as error:
        raise UnavailableError(f"Other workers don't reach this one just now. {error.message}") from error
