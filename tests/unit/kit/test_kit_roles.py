"""Who may call what: the table is complete, and what isn't in it is refused."""

import importlib
import pkgutil

import pytest
from google.protobuf import descriptor_pool

import peerloom.v1
from peerloom.errors import InvalidArgumentError, PermissionDeniedError
from peerloom.kit.principal import Principal, Role
from peerloom.kit.roles import MAY_CALL, check_is_node, check_may_call, check_not_revoked, check_owns

NODE = Principal(Role.NODE, "node-0123456789ab", "ada")
WORKER = Principal(Role.WORKER, "worker-1", "ada", "node-0123456789ab", "job-1")
USER = Principal(Role.USER, "bob-1", "bob")
OPERATOR = Principal(Role.OPERATOR, "operator", "registry")


def all_methods() -> set[str]:
    """Every method of every service that the protos have."""
    for module in pkgutil.iter_modules(peerloom.v1.__path__):
        importlib.import_module(f"peerloom.v1.{module.name}")
    files = [name.name for name in pkgutil.iter_modules(peerloom.v1.__path__) if name.name.endswith("_pb2")]
    pool = descriptor_pool.Default()
    found = [pool.FindFileByName(f"peerloom/v1/{name.removesuffix('_pb2')}.proto") for name in files]
    services = [service for file in found for service in file.services_by_name.values()]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


def test_the_table_has_every_method_and_no_other() -> None:
    assert set(MAY_CALL) == all_methods()


def test_what_is_not_in_the_table_is_refused_to_all() -> None:
    for role in Role:
        with pytest.raises(PermissionDeniedError, match="it is for: nobody"):
            check_may_call("/peerloom.v1.RegistryService/Forgotten", Principal(role, "a", "b"))


# By hand, for each role: something it may, and something that would be a breach.
@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (Role.NODE, "RegistryService/Heartbeat", "TrainerService/SubmitJob"),
        (Role.NODE, "AdmissionService/CertifyChild", "AdmissionService/CreateToken"),
        (Role.WORKER, "TrainerService/WorkerSession", "AdmissionService/Renew"),
        (Role.WORKER, "ArtifactService/GetArtifact", "RegistryService/ListNodes"),
        (Role.USER, "TrainerService/CancelJob", "NodeAgentService/StartWorkers"),
        (Role.USER, "AdmissionService/CreateToken", "AdmissionService/RotateAuthority"),
        (Role.TRAINER, "NodeAgentService/StartWorkers", "RegistryService/Register"),
        (Role.SELECTOR, "RegistryService/WatchNodes", "NodeAgentService/StartWorkers"),
        (Role.DASHBOARD, "TrainerService/GetJob", "TrainerService/CancelJob"),
        (Role.INFERENCE, "InferenceService/PassActivations", "NodeAgentService/StartInference"),
        (Role.OPERATOR, "AdmissionService/RotateAuthority", "RegistryService/Heartbeat"),
    ],
)
def test_a_role_may_do_its_part_and_nothing_else(role: Role, may: str, may_not: str) -> None:
    caller = Principal(role, "a", "b")
    check_may_call(f"/peerloom.v1.{may}", caller)
    with pytest.raises(PermissionDeniedError) as refused:
        check_may_call(f"/peerloom.v1.{may_not}", caller)
    assert refused.value.reason == "ROLE_MAY_NOT"
    assert f"the role {role}" in refused.value.message


def test_who_was_turned_out_may_nothing_and_neither_may_a_nodes_workers() -> None:
    for caller in (NODE, WORKER):
        with pytest.raises(PermissionDeniedError, match="was revoked"):
            check_not_revoked(caller, {NODE.uri})
    check_not_revoked(USER, {NODE.uri})
    # Another owner's node of the same id is another one.
    check_not_revoked(WORKER, {Principal(Role.NODE, NODE.id, "bob").uri})


def test_a_node_speaks_for_itself_and_an_owner_acts_on_what_is_its_own() -> None:
    check_is_node(NODE, NODE.id)
    with pytest.raises(PermissionDeniedError, match="speaks for itself only"):
        check_is_node(NODE, "node-ba9876543210")
    check_owns(USER, "bob", "job-1")
    check_owns(OPERATOR, "bob", "job-1")
    with pytest.raises(PermissionDeniedError, match="belongs to ada, not to bob"):
        check_owns(USER, "ada", "job-1")
    check_is_node(None, "anybody")  # without certificates nobody is known
    check_owns(None, "anybody", "job-1")


@pytest.mark.parametrize("principal", [NODE, WORKER, USER, OPERATOR])
def test_a_uri_is_read_back_as_what_it_was_made_of(principal: Principal) -> None:
    assert Principal.parse(principal.uri) == principal


def test_a_workers_uri_and_names_are_these() -> None:
    assert WORKER.uri == "spiffe://peerloom/ada/worker/worker-1/node-0123456789ab/job-1"
    assert WORKER.host_names == (
        "worker.peerloom",
        "worker-1.worker.peerloom",
        "member.peerloom",
        "job-1.job.peerloom",
    )


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://peerloom/ada/node",
        "spiffe://peerloom/ada/king/node-1",
        "spiffe://elsewhere/ada/node/node-1",
        "spiffe://peerloom/ada/node/../../x",
        "spiffe://peerloom//node/node-1",
        "spiffe://peerloom/ada/node/node-1/a/b/c",
    ],
)
def test_what_names_nobody_is_refused(uri: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Principal.parse(uri)


@pytest.mark.parametrize("owner", ["", "a/b", "a" * 64, "é", "a b", "*.peerloom"])
def test_a_name_that_could_be_taken_for_something_else_is_refused(owner: str) -> None:
    with pytest.raises(InvalidArgumentError, match="owner"):
        Principal(Role.USER, "a", owner).check()
