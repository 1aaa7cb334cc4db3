"""Which of a testbed's services get a token, and as whom."""

import time
from pathlib import Path
from typing import cast

from testbed_files import changed, plan

from peerloom.admission.certificates import Authority
from peerloom.kit.identity import write_identity
from peerloom.kit.principal import Principal, Role
from peerloom.testbed.entry import join_environments
from peerloom.testbed.services import ControlPlane


class Registry:
    """Makes tokens that say what was asked for."""

    def make_token(self, role: Role, owner: str, node_id: str) -> str:
        return f"{role} {node_id} of {owner}"


CONTROL = cast(ControlPlane, Registry())


def identify(path: Path, principal: Principal, life_s: float) -> None:
    """Gives somebody a certificate that was made an hour ago."""
    then_s = time.time() - 3600
    write_identity(path / "identity.pem", Authority.new(then_s, 1).credentials(principal, then_s, life_s))


def test_everybody_gets_a_token_at_first_and_each_host_is_an_owner(tmp_path: Path) -> None:
    assert join_environments(plan(), tmp_path, CONTROL) == {
        "selector": {"PEERLOOM_SELECTOR_JOIN": "selector  of registry"},
        "trainer": {"PEERLOOM_TRAINER_JOIN": "trainer  of registry"},
        **{f"host-{n}": {"PEERLOOM_NODE_JOIN": f"node  of host-{n}"} for n in (1, 2, 3)},
    }


def test_who_has_a_certificate_needs_none_and_whose_has_ended_comes_back_as_itself(tmp_path: Path) -> None:
    identify(tmp_path / "trainer", Principal(Role.TRAINER, "trainer-1", "registry"), 7200.0)
    identify(tmp_path / "nodes" / "host-1", Principal(Role.NODE, "node-a", "host-1"), 7200.0)
    identify(tmp_path / "nodes" / "host-2", Principal(Role.NODE, "node-b", "host-2"), 1800.0)
    found = join_environments(plan(), tmp_path, CONTROL)
    assert set(found) == {"selector", "host-2", "host-3"}
    assert found["host-2"] == {"PEERLOOM_NODE_JOIN": "node node-b of host-2"}


def test_without_a_door_nobody_needs_one(tmp_path: Path) -> None:
    plain = plan(changed("version: 1\n", "version: 1\ndoor: false\n"))
    assert join_environments(plain, tmp_path, CONTROL) == {}
