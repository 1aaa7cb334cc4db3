"""What can be asked of a Peerloom system, without async."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from peerloom.client.async_client import AsyncClient
from peerloom.client.job import JobHandle
from peerloom.client.loop_thread import LoopThread
from peerloom.client.sync_artifacts import Artifacts
from peerloom.client.types import Belief, ExplainedBelief, Job, Model, Node, Policy, ServiceEndpoint, Session
from peerloom.client.types.inference import Combination, Inference, Mode, Token

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Client:
    """A Peerloom system behind one address, the registry's; use it as a context manager, or close it.

    The same as `AsyncClient`, which see, for scripts and notebooks; works inside a running event loop too.
    Ctrl-C ends a wait, never a job. One client may be used by several threads.
    """

    def __init__(
        self, address: str | None = None, *, tls_ca: str = "", patience_s: float = 60.0, as_node: str = ""
    ) -> None:
        self._core = AsyncClient(address, tls_ca=tls_ca, patience_s=patience_s, as_node=as_node)
        self._loop = LoopThread()
        self.artifacts = Artifacts(self._core.artifacts, self._loop)
        # Also when it is forgotten, and at the interpreter's end, while threads can still be joined.
        self._closer = weakref.finalize(self, self._loop.close, self._core.close)

    @property
    def address(self) -> str:
        """The registry's host:port."""
        return self._core.address

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all lines and ends the private thread. Jobs go on."""
        self._closer()

    def nodes(self, *, states: Sequence[str] = (), labels: Mapping[str, str] | None = None) -> list[Node]:
        """All nodes in one of `states` (e.g. "alive"; empty: any) that carry all `labels`, by name."""
        return self._loop.run(self._core.nodes(states=states, labels=labels))

    def node(self, name: str) -> Node:
        """One node by name or id. Raises NotFoundError with the nearest names."""
        return self._loop.run(self._core.node(name))

    def drain(self, name: str, *, undo: bool = False) -> Node:
        """Gives a node no new work, its running work goes on; `undo` takes it back into service."""
        return self._loop.run(self._core.drain(name, undo=undo))

    def sessions(self, node: str = "", *, limit: int | None = None) -> list[Session]:
        """Online periods of a node, or of all, newest first; at most `limit`."""
        return self._loop.run(self._core.sessions(node, limit=limit))

    def interruptions(self, node: str = "", *, limit: int | None = None) -> list[Session]:
        """Sessions that ended without notice, of a node or of all, newest first; at most `limit`."""
        return self._loop.run(self._core.interruptions(node, limit=limit))

    def services(self) -> list[ServiceEndpoint]:
        """The registry and all services that announced themselves there, each asked for its health."""
        return self._loop.run(self._core.services())

    def beliefs(self) -> list[Belief]:
        """What the selector believes of all nodes, highest first."""
        return self._loop.run(self._core.beliefs())

    def belief(self, node: str) -> Belief:
        """What the selector believes of a node (name or id), with every term of the formula."""
        return self._loop.run(self._core.belief(node))

    def explain_belief(self, node: str, policy: str = "") -> ExplainedBelief:
        """A belief, what a policy (empty: the default) makes of the node, and whether it was chosen last."""
        return self._loop.run(self._core.explain_belief(node, policy))

    def belief_history(self, node: str, limit: int | None = 100) -> list[Belief]:
        """The updates of a node's belief, newest first, at most `limit` (None: all)."""
        return self._loop.run(self._core.belief_history(node, limit))

    def policies(self) -> list[Policy]:
        """The selection policies one can ask for, by name."""
        return self._loop.run(self._core.policies())

    def train(
        self,
        task: str,
        *,
        requests: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        policy: str = "",
        seed: int = 0,
        min_workers: int | None = None,
        max_workers: int | None = None,
        backend: str = "auto",
        name: str = "",
        initial_model: str = "",
        code: str | Path = "",
        min_slots: int = 1,
        equal_shares: bool = False,
        accelerator: str = "",
        labels: Mapping[str, str] | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> JobHandle:
        """Hands in a job and returns as soon as the trainer has stored it.

        The arguments, their limits and the errors are those of `AsyncClient.train`. In short: `task` is
        "digits", "mnist", "cifar10" or "module:Class"; `requests` is how many nodes may be asked (None: 3);
        `epochs`, `batch_size` and `learning_rate` are the task's when None.
        """
        handed_in = self._core.train(
            task,
            requests=requests,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            policy=policy,
            seed=seed,
            min_workers=min_workers,
            max_workers=max_workers,
            backend=backend,
            name=name,
            initial_model=initial_model,
            code=code,
            min_slots=min_slots,
            equal_shares=equal_shares,
            accelerator=accelerator,
            labels=labels,
            arguments=arguments,
        )
        return JobHandle(self._loop.run(handed_in), self._loop, self)

    def job(self, job_id: str) -> JobHandle:
        """A handle on a job by its id or the beginning of it. Raises NotFoundError with the nearest ids."""
        return JobHandle(self._loop.run(self._core.job(job_id)), self._loop, self)

    def jobs(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """Jobs in one of `states` (e.g. "running"; empty: any), newest first, at most `limit`."""
        return self._loop.run(self._core.jobs(states=states, limit=limit))

    def models(self, *, limit: int | None = None) -> list[Model]:
        """The models that finished jobs left with the trainer, newest first, at most `limit`."""
        return self._loop.run(self._core.models(limit=limit))

    def model(self, model: str) -> Model:
        """One model by NAME, NAME:latest, NAME:VERSION, digest, the beginning of one, or job.

        Raises NotFoundError with the nearest ones.
        """
        return self._loop.run(self._core.model(model))

    def fetch_model(self, model: str, path: str | Path) -> Path:
        """Writes a model (safetensors) to `path`, a file or a folder, and checks it; returns the file's path.

        `model` is NAME, NAME:VERSION, its digest, a beginning of it, or a job's id. Raises NotFoundError with
        the nearest digests, FailedPreconditionError for a job without a model, DataLossError for damaged
        bytes.
        """
        return self._loop.run(self._core.fetch_model(model, path))

    def infer(
        self,
        model: str,
        inputs: "ArrayLike",
        mode: Mode = "auto",
        *,
        nodes: int = 1,
        aggregate: Combination = "mean",
        stages: int = 0,
        micro_batches: int = 8,
        hedge: bool = True,
        timeout_s: float = 60.0,
    ) -> Inference:
        """What a model answers to a batch of inputs [n, ...]; arguments and errors as `AsyncClient.infer`."""
        return self._loop.run(
            self._core.infer(
                model,
                inputs,
                mode,
                nodes=nodes,
                aggregate=aggregate,
                stages=stages,
                micro_batches=micro_batches,
                hedge=hedge,
                timeout_s=timeout_s,
            )
        )

    def generate(
        self,
        model: str,
        prompt: str | bytes,
        *,
        tokens: int = 100,
        temperature: float = 0.0,
        seed: int = 0,
        mode: Mode = "auto",
        stages: int = 0,
    ) -> Iterator[Token]:
        """The tokens that continue the prompt, as they come; see `AsyncClient.generate`."""
        return self._loop.iterate(
            self._core.generate(
                model, prompt, tokens=tokens, temperature=temperature, seed=seed, mode=mode, stages=stages
            )
        )
