"""What a unit says: how the service is started and ended, and what it may do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peerloom.cli.unit_text import SERVICES, Unit, quoted, unit_text

PYTHON = "/opt/peerloom/bin/python"


def unit(service: str = "trainer", **changes: object) -> Unit:
    told = {"service": service, "name": service, "arguments": (), "python": PYTHON, "is_of_user": False}
    return Unit(**{**told, **changes})  # type: ignore[arg-type]  # the test's own words


def lines(made: Unit) -> list[str]:
    return unit_text(made).splitlines()


def test_a_service_is_started_with_its_flags_in_a_folder_of_its_own() -> None:
    told = lines(unit(name="second", arguments=("--listen", "10.0.0.1:7402")))
    command = f"{PYTHON} -m peerloom.cli trainer --listen 10.0.0.1:7402 --state %S/peerloom/second"
    assert f"ExecStart={command}" in told
    assert "StateDirectory=peerloom/second" in told
    assert "EnvironmentFile=-%E/peerloom/second.env" in told
    assert "Type=notify" in told
    assert "DynamicUser=yes" in told


def test_an_agent_keeps_what_its_sandbox_needs() -> None:
    told = unit_text(unit("agent"))
    assert f"{PYTHON} -m peerloom.cli node --state" in told
    assert "\nDelegate=yes\n" in told
    # Each of these would take namespaces, /proc or the GPU away.
    for line in ("RestrictNamespaces=", "ProtectKernelTunables=", "ProtectKernelLogs=", "PrivateDevices="):
        assert f"\n{line}" not in told
    assert "\nProtectSystem=strict\n" in told
    assert "\nNoNewPrivileges=yes\n" in told


def test_ends_are_polite_before_they_are_forced() -> None:
    """An agent gives its workers 6 s and its server 5, a trainer its server 5."""
    assert {"KillMode=mixed", "TimeoutStopSec=30"} <= set(lines(unit("agent")))
    assert {"KillMode=mixed", "TimeoutStopSec=20"} <= set(lines(unit("trainer")))


def test_who_fails_again_and_again_is_started_later_and_later() -> None:
    assert {"Restart=always", "RestartSteps=6", "RestartMaxDelaySec=60"} <= set(lines(unit(systemd=254)))
    old = lines(unit(systemd=252))
    assert "RestartSec=5" in old
    assert not any(line.startswith("RestartSteps") for line in old), "it would be told of as unknown"


def test_a_folder_of_ones_own_may_be_written() -> None:
    told = lines(unit(state="/data/my trainer", run_as="anna"))
    assert 'ReadWritePaths="/data/my trainer"' in told
    assert "User=anna" in told
    assert any(line.endswith('--state "/data/my trainer"') for line in told)
    assert not any(line.startswith(("StateDirectory", "DynamicUser")) for line in told)


def test_a_user_s_unit_asks_for_nothing_that_needs_root() -> None:
    told = unit_text(unit(is_of_user=True))
    for word in ("DynamicUser", "User=", "ProtectSystem", "CapabilityBoundingSet", "network-online"):
        assert word not in told
    assert "WantedBy=default.target" in told


def test_the_dashboard_keeps_nothing_and_notifies_nobody() -> None:
    told = unit_text(unit("dashboard"))
    assert "--state" not in told
    assert "Type=exec" in told
    assert "WatchdogSec" not in told


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--slots", "--slots"),
        ("a b", '"a b"'),
        ("", '""'),
        ("50%", "50%%"),
        ("$HOME", "$$HOME"),
        ('say "so"', r'"say \"so\""'),
        ("back\\slash", r'"back\\slash"'),
    ],
)
def test_a_word_means_itself(word: str, expected: str) -> None:
    assert quoted(word) == expected


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian's package systemd)"
)
@pytest.mark.parametrize("is_of_user", [False, True], ids=["system", "user"])
def test_systemd_itself_finds_nothing_wrong(tmp_path: Path, is_of_user: bool) -> None:
    paths = []
    for service in SERVICES:
        made = unit(
            service,
            is_of_user=is_of_user,
            python=shutil.which("sh"),
            systemd=252,
            arguments=("a b", "%", "$x"),
        )
        paths.append(tmp_path / f"peerloom-{made.name}.service")
        paths[-1].write_text(unit_text(made))
    whose = ["--user"] if is_of_user else []
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["systemd-analyze", *whose, "--man=no", "verify", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, ours) == (0, []), done.stderr
