"""How busy nodes say they are: kept in memory, for as long as it may be true."""

from typing import Any

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.services.registry.answers.node_messages import member_message
from peerloom.services.registry.membership.table import LOAD_KEPT_S, Member, moment_of
from peerloom.v1.registry_pb2 import GpuLoad, MachineLoad, Node

LOAD = MachineLoad(cpu_use=0.5, own_cpu_use=0.25, cores=2, memory_used_bytes=1, memory_total_bytes=4)


def shown(registry: Any, member: Member) -> Node:
    return member_message(member, moment_of(registry.clock))


async def test_the_newest_load_is_shown_until_it_is_old(registry: Any) -> None:
    member = await registry.beat((await registry.register()).session_id)
    assert not shown(registry, member).HasField("load"), "an older agent never says"
    registry.core.registrar.note_load(member, LOAD)
    registry.clock.advance(LOAD_KEPT_S)
    assert shown(registry, member).load == LOAD
    registry.clock.advance(0.5)
    assert not shown(registry, member).HasField("load")


async def test_a_load_ends_with_its_session_and_with_the_registry_and_is_in_no_event(registry: Any) -> None:
    session = await registry.register()
    member = await registry.beat(session.session_id)
    registry.core.registrar.note_load(member, LOAD)
    await registry.core.registrar.drain("ada", undo=False)
    newest = (await registry.events())[-1]
    assert not Node.FromString(newest.snapshot).HasField("load")
    await registry.core.registrar.deregister(session.session_id, "update")
    assert not shown(registry, member).HasField("load")
    member = await registry.beat((await registry.register()).session_id)
    registry.core.registrar.note_load(member, LOAD)
    await registry.restart()
    assert not shown(registry, registry.core.table.find("ada")).HasField("load")


@pytest.mark.parametrize(
    ("load", "field"),
    [
        (MachineLoad(cpu_use=1.5), "load.cpu_use"),
        (MachineLoad(own_cpu_use=float("nan")), "load.own_cpu_use"),
        (MachineLoad(cores=-1), "load.cores"),
        (MachineLoad(gpus=[GpuLoad(use=2)]), "load.gpus[0].use"),
        (MachineLoad(gpus=[GpuLoad()] * 65), "number of load.gpus"),
    ],
)
async def test_what_no_machine_can_be_busy_with_is_refused(
    registry: Any, load: MachineLoad, field: str
) -> None:
    member = await registry.beat((await registry.register()).session_id)
    with pytest.raises(InvalidArgumentError) as refused:
        registry.core.registrar.note_load(member, load)
    assert refused.value.metadata["field"] == field
    assert not shown(registry, member).HasField("load")
