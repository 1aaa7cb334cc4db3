"""Completion of names that only the system knows: nodes, jobs, models, artifacts, policies, and profiles.

A shell asks at each press of a key, so a system that doesn't answer is given up soon, and no error is shown.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from peerloom.cli.invocation import Invocation
from peerloom.errors import PeerloomError

if TYPE_CHECKING:
    from peerloom import Client

ANSWER_LIMIT_S = 2.0
# Of a name, and what a shell that can show more says beside it.
Named = tuple[str, str]
Look = Callable[["Client"], Iterable[Named]]


class SystemName(click.ParamType[str]):
    """The name of something in the system; `look` finds all that there are."""

    def __init__(self, name: str, look: Look) -> None:
        self.name = name
        self._look = look

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that begin as what was typed."""
        return [
            CompletionItem(name, help=help)
            for name, help in _answered(ctx.ensure_object(Invocation), self._look)
            if name.startswith(incomplete)
        ]


def _answered(invocation: Invocation, look: Look) -> list[Named]:
    found: list[Named] = []
    answered = threading.Event()

    def ask() -> None:
        try:
            with invocation.client() as client:
                found.extend(look(client))
        except PeerloomError:
            return  # there is nobody to ask, which the command itself will say
        finally:
            answered.set()

    # The client's calls have limits of their own, for people who wait.
    threading.Thread(target=ask, daemon=True).start()
    return found if answered.wait(ANSWER_LIMIT_S) else []


def _nodes(client: "Client") -> Iterable[Named]:
    return [(node.name, node.state) for node in client.nodes()]


def _jobs(client: "Client") -> Iterable[Named]:
    return [(job.id, f"{job.spec.name or job.spec.task}, {job.state}") for job in client.jobs(limit=100)]


def _models(client: "Client") -> Iterable[Named]:
    return [(model.reference, f"{model.task}, of {model.job_id}") for model in client.models(limit=100)]


def _artifacts(client: "Client") -> Iterable[Named]:
    return [(kept.digest, kept.name) for kept in client.artifacts.list()]


def _profiles(_: "Client") -> Iterable[Named]:
    from peerloom.client.profiles import Profiles  # here, because it brings gRPC

    return [(profile.name, profile.address) for profile in Profiles().list()]


def _policies(client: "Client") -> Iterable[Named]:
    return [(policy.name, policy.description) for policy in client.policies()]


NODE = SystemName("node", _nodes)
JOB = SystemName("job", _jobs)
MODEL = SystemName("model", _models)
ARTIFACT = SystemName("digest", _artifacts)
PROFILE = SystemName("profile", _profiles)
POLICY = SystemName("policy", _policies)
