"""Who asks a system with a door how it is shows the certificate that its file holds now."""

import time
from pathlib import Path

from door_system import DoorSystem
from node_agent_parts import StartService

from peerloom.admission.certificates import Authority, make_request
from peerloom.embedded.health import Prober
from peerloom.kit.identity import Credentials, Identity, write_identity


async def test_a_prober_takes_what_was_renewed_in_its_file(
    start_service: StartService, tmp_path: Path
) -> None:
    system = DoorSystem(tmp_path, start_service)
    path = system.operator_file
    fresh = Identity(path).current
    write_identity(path, due_for_renewal(system, fresh))
    with Prober(path) as prober:
        first = prober.channel(system.address)
        assert prober.health(system.address) == "SERVING"
        assert prober.channel(system.address) is first, "there is nothing newer yet"
        write_identity(path, fresh)
        assert prober.channel(system.address) is not first
        assert prober.health(system.address) == "SERVING"


def due_for_renewal(system: DoorSystem, fresh: Credentials) -> Credentials:
    """The same principal's, signed 50 minutes ago for an hour: its renewal is due since ten minutes."""
    pem = (system.state / "authority" / "authority-000001.pem").read_bytes()
    begin = pem.index(b"-----BEGIN CERTIFICATE")
    authority = Authority(pem[:begin], pem[begin:])
    signed = authority.sign(make_request(fresh.key), fresh.principal, time.time() - 3000, 3600.0)
    return Credentials.parse(fresh.key + signed + fresh.authorities)
