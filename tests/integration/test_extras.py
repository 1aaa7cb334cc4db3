"""Optional parts: each alone brings what its command needs, and a command without its part names it."""

import json
import subprocess
import sys
from collections.abc import Collection
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# What each optional part makes usable: the modules that its commands and settings import.
USED_BY = {
    "accelerate": ("accelerate",),
    "dashboard": ("peerloom.dashboard.window",),
    "hf": ("transformers",),
    "images": ("PIL.Image",),
    # pytorch_lightning itself looks for matplotlib in the metadata, which hides nothing, and imports it then.
    "lightning": ("lightning_fabric",),
    "metrics": ("peerloom.kit.metrics_server",),
    "object-store": ("peerloom.artifacts.object_store", "fsspec", "s3fs"),
    "plot": ("peerloom.experiments.plots", "matplotlib.figure"),
    "postgresql": ("psycopg",),
    "testbed": ("peerloom.testbed.backends.netem", "peerloom.testbed.containers", "docker", "pyroute2"),
    "top": ("peerloom.dashboard.terminal_window",),
    "trace": ("peerloom.kit.otel_tracer",),
    "track": (
        "peerloom.client.tracking.mlflow_tracker",
        "peerloom.client.tracking.tensorboard_tracker",
        "peerloom.client.tracking.wandb_tracker",
    ),
    "train": ("peerloom.worker.run", "peerloom.inference.server.servicer"),
}
HIDE = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"
ALL = (
    *("starlette", "uvicorn", "textual", "prometheus_client", "psycopg", "matplotlib", "PIL", "pyroute2"),
    *("docker", "tensorboard", "mlflow", "wandb", "torch", "safetensors", "sklearn", "transformers"),
    *("accelerate", "pytorch_lightning", "opentelemetry", "fsspec", "s3fs"),
)
# The user's own code imports these first.
IMPORTED_BY_USERS = {"accelerate", "hf", "lightning"}
# Prints what is said by whatever needs a part that is not there, by the part's name.
WITHOUT = """
import json, types
from pathlib import Path
from unittest import mock
from click.testing import CliRunner
from peerloom.artifacts.object_store import open_object_store
from peerloom.cli.commands import top
from peerloom.cli.main import cli
from peerloom.errors import PeerloomError
from peerloom.inference.client.input_files import batch_of
from peerloom.inference.client.local_model import OwnMachine
from peerloom.kit import tracing_setup
from peerloom.kit.database_engine import create_engine
from peerloom.kit.metrics_port import open_metrics
from peerloom.kit.raw_input import RawInput
from peerloom.testbed.needs import need_package

def said(*command):
    done = CliRunner().invoke(cli, [*command])
    return done.output + str(done.exception)

def raised(call):
    try:
        call()
    except PeerloomError as error:
        return error.message

there = types.SimpleNamespace(isatty=lambda: True)
picture = RawInput((1, 1), "uint8", 0, 255)
nowhere = ("--address", "127.0.0.1:1")
with mock.patch.object(top, "sys", types.SimpleNamespace(stdout=there, stdin=there)):
    watched = said("top", *nowhere)
print(json.dumps({
    "dashboard": said("dashboard", *nowhere),
    "images": raised(lambda: batch_of(Path("it.png"), picture, "uint8")),
    "metrics": raised(lambda: open_metrics("127.0.0.1:0")),
    "object-store": raised(lambda: open_object_store("s3://bucket/models")),
    "plot": said("plot", "beliefs"),
    "postgresql": raised(lambda: create_engine("postgresql+psycopg://me@127.0.0.1:1/it", "trainer")),
    "testbed": need_package("docker").remedy,
    "top": watched,
    "trace": tracing_setup._start("client", complains=False),
    "track": said("train", "digits", "--track", "tensorboard:/nowhere", *nowhere),
    "train": OwnMachine(mock.Mock()).why_not(),
}))
"""


def _wanted(extra: str) -> set[str]:
    """The names of all distributions that `pip install peerloom[extra]` brings on this machine."""
    found, left = set[str](), [Requirement(f"peerloom[{extra}]")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        wanted = left.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        found.add(key[0])
        for text in metadata.requires(wanted.name) or []:
            asked = Requirement(text)
            chosen = [{"extra": one} for one in ("", *wanted.extras)]
            if asked.marker is None or any(map(asked.marker.evaluate, chosen)):
                left.append(asked)
    return found


def _foreign_modules(wanted: Collection[str]) -> list[str]:
    """Top-level modules that only other distributions brought here."""
    return sorted(
        name
        for name, bringers in metadata.packages_distributions().items()
        if name.isidentifier() and not {canonicalize_name(one) for one in bringers} & set(wanted)
    )


def _declared() -> set[str]:
    return set(metadata.metadata("peerloom").get_all("Provides-Extra") or []) - {"dev"}


def test_every_optional_part_is_tried() -> None:
    assert set(USED_BY) == _declared()


@pytest.mark.parametrize("extra", sorted(USED_BY))
def test_a_part_alone_brings_what_it_is_for(extra: str) -> None:
    hidden = [name for name in _foreign_modules(_wanted(extra)) if name not in ("_distutils_hack", "py")]
    script = HIDE.format(names=hidden) + "".join(f"import {name}\n" for name in USED_BY[extra])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_what_lacks_its_part_says_which() -> None:
    script = HIDE.format(names=ALL) + WITHOUT
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == _declared() - IMPORTED_BY_USERS, "what those lack, Python's import says"
    silent = {extra: said for extra, said in told.items() if f"pip install 'peerloom[{extra}]'" not in said}
    assert silent == {}
