"""The environment in which torchrun starts a script: pure.

The names are those of torch.distributed.elastic.agent.server.local_elastic_agent; what is said of nodes there
holds here for nodes of a generation, in the order of their lowest ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ScriptPlace:
    """One process's place in its generation, as `node_ids` and `slots`, by rank, tell it.

    The key-value store in which the processes find each other is at `address`, `port`.
    """

    rank: int
    node_ids: Sequence[str]
    slots: Sequence[int]
    address: str
    port: int

    @property
    def world_size(self) -> int:
        """Processes in all."""
        return len(self.node_ids)

    @property
    def local_ranks(self) -> list[int]:
        """The ranks on the same node, in their order."""
        own = self.node_ids[self.rank]
        return [rank for rank, node_id in enumerate(self.node_ids) if node_id == own]

    @property
    def group_rank(self) -> int:
        """The node's place among the nodes."""
        return list(dict.fromkeys(self.node_ids)).index(self.node_ids[self.rank])


def elastic_variables(place: ScriptPlace, run_id: str, restarts: int, max_restarts: int) -> dict[str, str]:
    """What `init_process_group` with env:// reads, and torchrun's own; `restarts` counts all of them."""
    local = place.local_ranks
    values = {
        "RANK": place.rank,
        "LOCAL_RANK": local.index(place.rank),
        "WORLD_SIZE": place.world_size,
        "LOCAL_WORLD_SIZE": len(local),
        "GROUP_RANK": place.group_rank,
        "GROUP_WORLD_SIZE": len(set(place.node_ids)),
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world_size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": place.address,
        "MASTER_PORT": place.port,
        "TORCHELASTIC_RESTART_COUNT": restarts,
        "TORCHELASTIC_MAX_RESTARTS": max_restarts,
        "TORCHELASTIC_RUN_ID": run_id,
        # The store is there already: rank 0 connects to it as all others do.
        "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
    }
    return {name: str(value) for name, value in values.items()}


def visible_devices(place: ScriptPlace, kind: str, inherited: str | None) -> str:
    """CUDA_VISIBLE_DEVICES: the cards of the job's slots on the node, so that card LOCAL_RANK is one's own.

    `inherited` is what the node's agent was started with; None: all cards. Without GPU slots it is empty.
    """
    if kind != "cuda":
        return ""
    cards = inherited.split(",") if inherited else []
    slots = [place.slots[rank] for rank in place.local_ranks]
    return ",".join(cards[slot] if slot < len(cards) else str(slot) for slot in slots)


def script_environment(
    inherited: Mapping[str, str], place: ScriptPlace, kind: str, threads: int, elastic: Mapping[str, str]
) -> dict[str, str]:
    """All of a script's environment: the worker's own, its cards, `threads` an operator, and `elastic`."""
    devices = visible_devices(place, kind, inherited.get("CUDA_VISIBLE_DEVICES"))
    threads_of = {} if "OMP_NUM_THREADS" in inherited else {"OMP_NUM_THREADS": str(threads)}
    return {**inherited, "CUDA_VISIBLE_DEVICES": devices, **threads_of, **elastic}
