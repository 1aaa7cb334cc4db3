"""What can be asked of a Peerloom system, as coroutines."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.conversions.beliefs import belief_of, explained_of, policy_of
from peerloom.client.conversions.jobs import job_of
from peerloom.client.door import AsyncDoor
from peerloom.client.jobs import AsyncJobHandle
from peerloom.client.model_files import SHARD_BYTES, fetch_model
from peerloom.client.models import find_model, list_models
from peerloom.client.network import AsyncNetwork
from peerloom.client.remote_services import Services
from peerloom.client.requests import job_spec, job_states, script_spec
from peerloom.client.signatures import taking
from peerloom.client.transport_seam import TransportSeam, transport_in_use
from peerloom.client.types.artifacts import ModelFormat
from peerloom.client.types.beliefs import Belief, ExplainedBelief, Policy
from peerloom.client.types.inference import Combination, GeneratedToken, Inference, Mode, OpinionMode
from peerloom.client.types.job_specs import JobSpec, ScriptSpec
from peerloom.client.types.jobs import Job, Model
from peerloom.client.types.shown import Listing
from peerloom.kit import tracing
from peerloom.kit.ids import new_request_id
from peerloom.v1 import selector_pb2, trainer_pb2

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloom.inference.client.router import InferenceRouter


class AsyncClient(AsyncNetwork):
    """A Peerloom system behind one address, the registry's; use it as an async context manager.

    `address` is host:port; without one: that of the `profile`, of PEERLOOM_ADDRESS, of PEERLOOM_PROFILE or
    the profile in use, of the embedded system that runs, of the login, or 127.0.0.1:7400. `identity` is a PEM
    file; without one PEERLOOM_IDENTITY, or the profile's or login's for that address; else all is plain. A
    watch tries for `patience_s` while the trainer is away; `as_node` names the node that asks, if one does.
    `transport` is for tests against a system in memory (`peerloom.testing`).
    Nothing connects before the first call. All methods raise subclasses of PeerloomError;
    UnavailableError names the service, its address and what to start.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        identity: str = "",
        profile: str = "",
        patience_s: float = 60.0,
        as_node: str = "",
        transport: TransportSeam | None = None,
    ) -> None:
        transport = transport or transport_in_use()
        found = transport.find_address(address, identity, profile)
        super().__init__(Services(found, as_node, transport), patience_s)
        self._router: InferenceRouter | None = None
        transport.trace()
        self.artifacts = AsyncArtifacts(self._services)
        self.door = AsyncDoor(self._services)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all channels; calls under way end. Jobs go on."""
        if self._router is not None:
            await self._router.close()
        await self._services.close()

    async def beliefs(self) -> list[Belief]:
        """What the selector believes of all nodes, highest first."""
        request = selector_pb2.ListBeliefsRequest()
        found = await self._services.selector.pages(
            lambda stub: stub.ListBeliefs, request, lambda page: page.beliefs
        )
        return Listing(belief_of(each) for each in found)

    async def belief(self, node: str) -> Belief:
        """What the selector believes of a node (name or id), with every term of the formula."""
        request = selector_pb2.GetBeliefRequest(node=node)
        return belief_of((await self._services.selector.call(lambda stub: stub.GetBelief, request)).belief)

    async def explain_belief(self, node: str, policy: str = "") -> ExplainedBelief:
        """A belief, what a policy (empty: the default) makes of the node, and whether it was chosen last."""
        request = selector_pb2.GetBeliefRequest(node=node, policy=policy)
        return explained_of(await self._services.selector.call(lambda stub: stub.GetBelief, request))

    async def belief_history(self, node: str, limit: int | None = 100) -> list[Belief]:
        """The updates of a node's belief, newest first, at most `limit` (None: all)."""
        request = selector_pb2.ListBeliefHistoryRequest(node=node)
        found = await self._services.selector.pages(
            lambda stub: stub.ListBeliefHistory, request, lambda page: page.updates, limit
        )
        return Listing(belief_of(each) for each in found)

    async def policies(self) -> list[Policy]:
        """The selection policies one can ask for, by name."""
        answer = await self._services.selector.call(
            lambda stub: stub.ListPolicies, selector_pb2.ListPoliciesRequest()
        )
        return Listing(policy_of(each) for each in answer.policies)

    @taking(JobSpec)
    async def train(self, spec: JobSpec) -> AsyncJobHandle:
        """Hands in a job and returns as soon as the trainer has stored it.

        `task` is a built-in one (e.g. "digits") or a "module:Class" importable on the nodes, `arguments` are
        its own (e.g. {"data": "/data/mnist"}; "artifact:DIGEST" sends an artifact to the nodes and gives its
        path). `code` is a folder with the task's modules, or the digest of one put in before, for nodes that
        allow it. `requests` is how many nodes may be asked, 1 to 1000, 3 when None. `epochs` (1 to
        1,000,000), `batch_size` (samples in one batch over all workers together, 1 to 16,777,216) and
        `learning_rate` (above 0) are the task's when None. `policy` chooses the nodes (empty: the selector's
        default), among those with `min_slots` (0 to 1024), the `accelerator` (e.g. "cuda") and all `labels`.
        `backend` is "auto", "gloo" or "nccl". `seed` makes a run repeatable, with `equal_shares` also where
        the workers' speeds differ or vary, which shares would follow; `robust` says how the training goes on
        beside workers that lie ("off": not at all; "auto": by a trimmed mean of one vote an owner, with fewer
        than five owners by refusing gradients that aren't finite; whoever is found to lie is dismissed unless
        it is "off"); `sync` names how gradients become their sum, e.g. "codec=int8" (empty: an all-reduce),
        or after how many batches of its own a worker exchanges what these changed, e.g. "diloco", or leaves
        that to the trainer ("auto" or e.g. "auto,quality=near");
        `plan` says how the model spreads over the workers: each holds all of it ("data", as when empty), or K
        of them hold consecutive layers ("pipeline=K", "pipeline=K,micro_batches=M"), or several hold those of
        a stage ("pipeline=2,widths=2/1"), or all compute all layers, of which each holds some ("sharded=K")
        or a piece of each ("tensor=K"), or it is left to the trainer ("auto");
        `initial_model` is the digest of parameters to begin with.
        Or `task` is a script, NAME.py, with a loop of `peerloom.elastic`: it is sent alone or with the folder
        `code` that it lies in, and gets `script_arguments`; epochs, batch size and rate are its own.
        Raises InvalidArgumentError naming the argument and its limit, NotFoundError for an unknown policy.
        """
        with tracing.begin("train", task=spec.task):
            return await self._submit(await job_spec(spec, self.artifacts))

    @taking(ScriptSpec)
    async def run_script(self, spec: ScriptSpec) -> AsyncJobHandle:
        """Hands in a training script as torchrun starts it, one process a slot, on nodes that allow code.

        `script` is sent alone, or with the folder `code` that it lies in (or is a path in the bundle of that
        digest), and gets `script_arguments`. All processes are started again when one fails, `max_restarts`
        times (0 to 1000, 3 when None), or when workers are lost or join, with the files that it left. The
        other arguments are those of `train`. Raises InvalidArgumentError, NotFoundError.
        """
        with tracing.begin("run script", script=str(spec.script)):
            return await self._submit(await script_spec(spec, self.artifacts))

    async def _submit(self, spec: trainer_pb2.JobSpec) -> AsyncJobHandle:
        request = trainer_pb2.SubmitJobRequest(spec=spec, request_id=new_request_id())
        answer = await self._services.trainer.call(lambda stub: stub.SubmitJob, request)
        return self._handle(answer.job.job_id)

    async def job(self, job_id: str) -> AsyncJobHandle:
        """A handle on a job by its id or the beginning of it. Raises NotFoundError with the nearest ids."""
        request = trainer_pb2.GetJobRequest(job_id=job_id)
        answer = await self._services.trainer.call(lambda stub: stub.GetJob, request)
        return self._handle(answer.job.job_id)

    async def jobs(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """Jobs in one of `states` (e.g. "running"; empty: any), newest first, at most `limit`."""
        request = trainer_pb2.ListJobsRequest(states=job_states(states))
        found = await self._services.trainer.pages(
            lambda stub: stub.ListJobs, request, lambda page: page.jobs, limit
        )
        return Listing(job_of(each) for each in found)

    async def models(self, *, limit: int | None = None) -> list[Model]:
        """The models that finished jobs left with the trainer, newest first, at most `limit`."""
        return await list_models(self._services, limit)

    async def model(self, model: str) -> Model:
        """One model by NAME, NAME:latest, NAME:VERSION, digest, the beginning of one, or job.

        Raises NotFoundError with the nearest ones.
        """
        return await find_model(self._services, model)

    async def fetch_model(
        self,
        model: str,
        path: str | Path,
        *,
        format: ModelFormat = "safetensors",
        shard_bytes: int = SHARD_BYTES,
        checkpoint: bool = False,
    ) -> Path:
        """Writes a model to `path`, and checks it; returns where it lies.

        `model` is NAME, NAME:VERSION, its digest, a beginning of it, or a job's id; with `checkpoint` a
        job's, whose newest checkpoint is taken. `format` is "safetensors" (a file, or one in the folder
        `path`), "hugging-face" (a new folder for from_pretrained, in files of at most `shard_bytes`) or "dcp"
        (one for torch.distributed.checkpoint). Raises NotFoundError with the nearest digests,
        FailedPreconditionError for what has no model, checkpoint or config, DataLossError for bad bytes.
        """
        return await fetch_model(self._services, model, path, format, shard_bytes, checkpoint)

    async def infer(
        self,
        model: str,
        inputs: "ArrayLike | str | bytes | Path | Sequence[Path]",
        mode: Mode = "auto",
        *,
        nodes: int = 1,
        aggregate: Combination = "mean",
        stages: int = 0,
        micro_batches: int = 8,
        hedge: bool = True,
        second_opinion: OpinionMode = "auto",
        timeout_s: float = 60.0,
    ) -> Inference:
        """What a model answers to inputs [n, ...], n from 1 to 65,536, raw as `Model.raw_input` says.

        `inputs` are an array, lists, texts, or paths of .npy, .json, .csv (a row each), .png or .txt files.
        `model` is a name (with or without version), a digest, the beginning of one, or a job. `mode` is
        "remote" (a node that holds the model), "split" (its layers on `stages` nodes, 0: as many as are
        fastest, the inputs in `micro_batches`), "local" (in this process) or "auto", the fastest as measured.
        With `nodes` over 1 so many answer the same, their class probabilities combined by `aggregate`.
        `hedge`: a second node is asked when the first is late. `second_opinion` asks another owner's node the
        same, the seldomer the more often the first was right: in the "background", or "wait" for the answer
        of most; "auto": "background" behind a door, else "off". Raises InvalidArgumentError, NotFoundError,
        ResourceExhaustedError for a model that fits no nodes, DeadlineError after `timeout_s`.
        """
        with tracing.begin("infer", model=model):
            return await self._inference().infer(
                model,
                inputs,
                mode,
                timeout_s,
                nodes=nodes,
                aggregate=aggregate,
                stages=stages,
                micro_batches=micro_batches,
                hedge=hedge,
                second_opinion=second_opinion,
            )

    async def generate(
        self,
        model: str,
        prompt: str | bytes,
        *,
        tokens: int = 100,
        temperature: float = 0.0,
        seed: int = 0,
        mode: Mode = "auto",
        stages: int = 0,
    ) -> AsyncGenerator[GeneratedToken, None]:
        """The tokens with which a model of text continues the prompt, until its context is full.

        `temperature` 0 takes the most probable token each time; above, chance from `seed` chooses. `mode`
        "remote" runs on one node, "split" on `stages` nodes (0: at most 3), "local" here, "auto" on the
        fewest that hold the model. A node lost on the way is replaced, and the tokens are those that would
        have come.
        Raises FailedPreconditionError for a model that doesn't continue sequences.
        """
        from peerloom.inference.client.decoding import generate  # here, because it brings numpy

        router = self._inference()
        async with aclosing(generate(router, model, prompt, tokens, temperature, seed, mode, stages)) as made:
            async for token in made:
                yield token

    def _handle(self, job_id: str) -> AsyncJobHandle:
        return AsyncJobHandle(self._services, job_id, self._patience_s, self._clock)

    def _inference(self) -> "InferenceRouter":
        if self._router is None:
            from peerloom.inference.client.router import InferenceRouter  # here, because it brings numpy

            self._router = InferenceRouter(self._services, self._clock, self._services.transport.chance)
        return self._router
