"""A training process by script: the real session protocol, with the sample cursor where the model would be.

What a real worker's state is, parameters and optimiser, is here the list of what it was trained on. It
travels as that does: from peers, in checkpoints, in the model. So the model itself tells which samples made
it.
"""

import asyncio
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from unittest import mock

from peerloom.errors import DataLossError, PeerloomError, PermissionDeniedError
from peerloom.kit.dialing import Dialer
from peerloom.kit.safetensors_file import METADATA_KEY, parameters_digest
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind, GetArtifactRequest, PutArtifactRequest
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    ConfigureGeneration,
    EndWorker,
    EpochProgress,
    JobSpec,
    PrepareWorker,
    SaveState,
    StepProgress,
    WorkerAborted,
    WorkerFailed,
    WorkerFinished,
    WorkerMet,
    WorkerPrepared,
    WorkerReady,
    WorkerSessionRequest,
)
from peerloom.worker.assignment import Assignment
from peerloom.worker.trainer_session import TrainerSession
from tests.simulation.collective import Collective, GenerationBrokenError, Membership
from tests.simulation.processes import Run

SAMPLES = 120
LOAD_S = (0.05, 0.4)
STEP_S = (0.03, 0.12)
CALL_S = 10.0


@dataclass
class State:
    """What was committed: each step's epoch (from 1), samples (first, one past the last) and generation.

    Two generations that make the same step from the same samples come to parameters that differ in their last
    digits, so the generation is part of what the parameters' digest stands for.
    """

    trail: list[tuple[int, int, int, int]] = field(default_factory=list)
    evaluated: int = 0

    @property
    def step(self) -> int:
        """How many steps."""
        return len(self.trail)

    def metric(self) -> float:
        """What the model scores, 0 to 1: other for each way of training."""
        return hashlib.sha256(json.dumps(self.trail).encode()).digest()[0] / 255

    def to_bytes(self) -> bytes:
        """A safetensors file: what was evaluated may differ between workers, as buffers do."""
        trail, evaluated = json.dumps(self.trail).encode(), json.dumps(self.evaluated).encode()
        end = len(trail) + len(evaluated)
        header = json.dumps(
            {
                "__metadata__": {METADATA_KEY: json.dumps({"buffers": ["evaluated"]})},
                "trail": {"dtype": "U8", "shape": [len(trail)], "data_offsets": [0, len(trail)]},
                "evaluated": {"dtype": "U8", "shape": [end - len(trail)], "data_offsets": [len(trail), end]},
            }
        ).encode()
        return len(header).to_bytes(8, "little") + header + trail + evaluated

    @classmethod
    def from_bytes(cls, data: bytes) -> "State":
        """From an artifact."""
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        trail, evaluated = (
            json.loads(data[begin + first : begin + end])
            for first, end in (header[name]["data_offsets"] for name in ("trail", "evaluated"))
        )
        return cls([(epoch, first, end, by) for epoch, first, end, by in trail], evaluated)


class Commands:
    """What the trainer wants next, for a training without threads."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, command: Any) -> None:
        """From the session."""
        self._queue.put_nowait(command)

    async def get(self) -> Any:
        """The next one."""
        return await self._queue.get()


class SimulatedSession(TrainerSession):
    """The real session on the simulation's loop."""

    def __init__(self, run: Run, assignment: Assignment, on_abort: Any, on_form_ahead: Any) -> None:
        with mock.patch("asyncio.new_event_loop", return_value=run.world.loop):
            super().__init__(assignment, on_abort, on_form_ahead)
        self._simulated_run = run
        self.commands = Commands()  # type: ignore[assignment]  # awaited instead of waited for

    def start(self) -> None:
        """Connects."""
        self._simulated_run.spawn(self._keep_connected())

    def _post(self, message: WorkerSessionRequest) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(message)


class ScriptedWorker:
    """As `peerloom.worker.run`: follows the trainer's commands until the job is over."""

    def __init__(self, run: Run, assignment: Assignment, dialer: Dialer) -> None:
        self.run, self.assignment, self._dialer = run, assignment, dialer
        self.session = SimulatedSession(run, assignment, self._abort, self._form_ahead)
        self._facts = run.world.observed
        self._chance = run.world.chance
        self._state: State | None = None
        self._spec = JobSpec()
        self._member: Membership | None = None
        self._formed_ahead: dict[int, Membership] = {}
        self._meetings: dict[int, asyncio.Task[None]] = {}
        self._checkpoint_interval_s = 0.0
        self._saved_s = 0.0

    async def work(self) -> int:
        """Its exit status."""
        self.session.start()
        try:
            while True:
                match await self.session.commands.get():  # type: ignore[misc]  # see SimulatedSession
                    case EndWorker():
                        return 0
                    case SaveState():
                        await self._save()
                    case PrepareWorker() as prepare:
                        self._checkpoint_interval_s = prepare.checkpoint_interval_s
                        await self._prepare(prepare.spec)
                        self._say_prepared()
                    case ConfigureGeneration() as config:
                        await self._work_in(config)
        except PeerloomError as error:
            await self._give_up(error.message)
            return 1

    def lost(self) -> None:
        """The process died: its connections to the others close."""
        for member in [*self._formed_ahead.values(), *([self._member] if self._member else [])]:
            member.close()

    @property
    def _steps_per_epoch(self) -> int:
        return -(-SAMPLES // self._spec.batch_size)

    @property
    def _total_steps(self) -> int:
        return int(self._steps_per_epoch * self._spec.epochs)

    async def _give_up(self, reason: str) -> None:
        failed = WorkerFailed(reason=reason, is_permanent=True)
        self.session.say(WorkerSessionRequest(failed=failed))
        while not isinstance(await self.session.commands.get(), EndWorker):  # type: ignore[misc]  # as above
            pass

    def _abort(self, abort: AbortGeneration) -> None:
        for member in [*self._formed_ahead.values(), *([self._member] if self._member else [])]:
            generation = member.collective.generation
            if abort.at_step:
                if generation == abort.generation:
                    member.leave_at(abort.at_step, abort.reason)
            elif not abort.generation or generation <= abort.generation:
                member.break_(abort.reason)

    def _form_ahead(self, config: ConfigureGeneration) -> None:
        member = self._formed_ahead[config.generation] = self._new_member(config)
        self._meetings[config.generation] = self.run.spawn(self._meet_ahead(member, config))

    async def _meet_ahead(self, member: Membership, config: ConfigureGeneration) -> None:
        with suppress(GenerationBrokenError):  # whoever enters it sees that
            await member.gather("meet", None, config.collective_timeout_s)
            met = WorkerMet(generation=config.generation)
            self.session.answer(WorkerSessionRequest(met=met))

    def _new_member(self, config: ConfigureGeneration) -> Membership:
        collective: Collective = self._facts.collective(self.assignment, config)
        member = Membership(collective, config.rank, self.run)
        collective.join(member)
        return member

    async def _prepare(self, spec: JobSpec) -> State:
        if self._state is None:
            if why_not := self.assignment.work.why_not(spec):
                raise PermissionDeniedError(why_not)
            await asyncio.sleep(self._chance.uniform(*LOAD_S))
            self._state, self._spec = State(), spec
        return self._state

    def _say_prepared(self) -> None:
        prepared = WorkerPrepared(
            training_samples=SAMPLES,
            epochs=self._spec.epochs,
            batch_size=self._spec.batch_size,
            learning_rate=self._spec.learning_rate,
        )
        self.session.answer(WorkerSessionRequest(prepared=prepared))

    async def _work_in(self, config: ConfigureGeneration) -> None:
        state = await self._prepare(config.spec)
        if config.checkpoint_digest:
            taken = await self._take_checkpoint(config)
            if taken is None:
                return
            state = self._state = taken
        if state.step and state.evaluated * self._steps_per_epoch == state.step:
            state.evaluated -= 1  # as TrainingState.reopen_epoch
        is_ahead = config.generation in self._formed_ahead
        member = self._member = self._formed_ahead.pop(config.generation, None) or self._new_member(config)
        if self.session.newest_generation > config.generation:
            member.break_("a newer generation takes its place")
        try:
            if is_ahead:
                await self._meetings.pop(config.generation)
                member.check()
            elif config.world_size > 1:
                await member.gather("meet", None, config.collective_timeout_s)
            if config.newcomers:
                await self._take_state(member, config)
            await self._train(member, config)
        except GenerationBrokenError as broken:
            member.close()
            step = self._state.step if self._state else 0
            self.session.set_position(step, 0)
            aborted = WorkerAborted(generation=config.generation, committed_step=step, reason=str(broken))
            self.session.say(WorkerSessionRequest(aborted=aborted))
        else:
            member.close()

    async def _take_checkpoint(self, config: ConfigureGeneration) -> State | None:
        try:
            return State.from_bytes(await self._get(config.checkpoint_digest))
        except DataLossError as error:
            refused = WorkerAborted(
                generation=config.generation,
                reason=error.message,
                refused_checkpoint=config.checkpoint_digest,
            )
            self.session.say(WorkerSessionRequest(aborted=refused))
            return None

    async def _take_state(self, member: Membership, config: ConfigureGeneration) -> None:
        assert self._state is not None, "the task is loaded"
        words = await member.gather("state", self._state.to_bytes(), config.collective_timeout_s)
        states = {rank: State.from_bytes(word) for rank, word in words.items()}
        giver = max(states, key=lambda rank: (states[rank].step, -rank))
        if config.rank != giver:
            await asyncio.sleep(self._chance.uniform(0.01, 0.1))
            member.check()
            self._state = states[giver]
        await member.gather("has state", None, config.collective_timeout_s)

    async def _train(self, member: Membership, config: ConfigureGeneration) -> None:
        state, session = self._state, self.session
        assert state is not None, "the task is loaded"
        session.set_position(state.step, config.generation)
        session.say(WorkerSessionRequest(ready=WorkerReady(generation=config.generation)))
        session.set_reporting(config.rank == 0)
        while True:
            member.check(state.step)
            if state.evaluated < state.step // self._steps_per_epoch:
                await member.gather(f"evaluate {state.evaluated + 1}", None, config.collective_timeout_s)
                state.evaluated += 1
                epoch, metric = state.evaluated, state.metric()
                session.report(EpochProgress(epoch=epoch, metric_name="accuracy", metric=metric))
            elif state.step < self._total_steps:
                session.report(await self._step(member, config, state))
                session.set_position(state.step, config.generation)
                self._save_when_due(config)
            else:
                break
        session.say(WorkerSessionRequest(finished=await self._finish(config, state)))

    async def _step(self, member: Membership, config: ConfigureGeneration, state: State) -> StepProgress:
        began_s, step = self.run.world.loop.time(), state.step
        await asyncio.sleep(self._chance.uniform(*STEP_S))
        await member.gather(f"step {step + 1}", None, config.collective_timeout_s)
        first = step % self._steps_per_epoch * self._spec.batch_size
        end, epoch = min(first + self._spec.batch_size, SAMPLES), step // self._steps_per_epoch + 1
        state.trail.append((epoch, first, end, config.generation))
        step_s = self.run.world.loop.time() - began_s
        return StepProgress(
            step=step + 1,
            total_steps=self._total_steps,
            epoch=epoch,
            loss=1.0 / (step + 1),
            samples=end - first,
            samples_per_s=(end - first) / step_s,
            step_s=step_s,
            first_sample=first,
            generation=config.generation,
            workers=config.world_size,
        )

    def _save_when_due(self, config: ConfigureGeneration) -> None:
        now_s = self.run.world.loop.time()
        if (
            config.rank == 0
            and self._checkpoint_interval_s
            and now_s - self._saved_s > self._checkpoint_interval_s
        ):
            self._saved_s = now_s
            self.run.spawn(self._save())

    async def _save(self) -> None:
        if self._state is None:
            return
        step, epoch, data = self._state.step, self._state.evaluated, self._state.to_bytes()
        try:
            artifact = await self._put(data, ArtifactKind.ARTIFACT_KIND_CHECKPOINT, "checkpoint")
        except PeerloomError:
            return  # the next one will do
        self.session.report_checkpoint(Checkpoint(step=step, epoch=epoch, artifact=artifact))

    async def _finish(self, config: ConfigureGeneration, state: State) -> WorkerFinished:
        model = Artifact()
        if config.rank == 0:
            model = await self._put(state.to_bytes(), ArtifactKind.ARTIFACT_KIND_MODEL, "model.safetensors")
        return WorkerFinished(
            generation=config.generation,
            model=model,
            parameters_digest=parameters_digest(BytesIO(state.to_bytes())),
            training_s=1.0,
            samples=sum(end - first for _, first, end, _ in state.trail),
        )

    async def _put(self, data: bytes, kind: "ArtifactKind.ValueType", name: str) -> Artifact:
        digest = hashlib.sha256(data).hexdigest()
        header = Artifact(
            digest=digest, size_bytes=len(data), kind=kind, name=name, job_id=self.assignment.job_id
        )

        async def parts() -> Any:
            yield PutArtifactRequest(header=header)
            yield PutArtifactRequest(chunk=data)

        async with self._dialer.artifacts(self.assignment.agent_address) as agent:
            answer = await agent.send(agent.stub.PutArtifact, parts(), CALL_S)
            return answer.artifact

    async def _get(self, digest: str) -> bytes:
        data = b""
        async with self._dialer.artifacts(self.assignment.agent_address) as agent:
            request = GetArtifactRequest(digest=digest)
            async for part in agent.stream(agent.stub.GetArtifact, request, CALL_S):
                data += part.chunk
        return data
