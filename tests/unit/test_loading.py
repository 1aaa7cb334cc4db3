"""What is loaded, and when: nobody waits for, or has to install, what they do not use."""

import subprocess
import sys

import pytest

LIGHT = (
    "peerloom",
    "peerloom.client",
    "peerloom.embedded",
    "peerloom.cli.main",
    "peerloom.worker.tasks.built_in",
    "peerloom.inference.client.router",
    "peerloom.inference.server.serving",
    "peerloom.testing",
)
SERVICES = ("registry", "selector", "trainer")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement."""
    script = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", [*LIGHT, *(f"peerloom.services.{name}.__main__" for name in SERVICES)])
def test_nothing_loads_what_it_may_have_to_do_without(module: str) -> None:
    optional = {"torch", "sklearn", "safetensors", "prometheus_client", "opentelemetry"}
    assert loaded_by(f"import {module}") & optional == set()


def test_the_command_line_answers_help_without_loading_the_system() -> None:
    """What makes `peerloom --help` slow is what it loads, so that is what is held."""
    call = "sys.argv = ['peerloom', '--help']\ntry: main()\nexcept SystemExit: pass"
    statement = f"from peerloom.cli.main import main\n{call}"
    heavy = {"grpc", "torch", "sqlalchemy", "alembic", "google", "numpy", "yaml"}
    assert loaded_by(statement) & heavy == set()
