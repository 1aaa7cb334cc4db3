"""A training process by script: the real session protocol, with a list of samples for a model."""

import asyncio
from contextlib import suppress
from io import BytesIO

from peerloom.errors import DataLossError, FailedPreconditionError, PeerloomError, PermissionDeniedError
from peerloom.kit.safetensors_file import parameters_digest
from peerloom.testing.agent_transfers import JobsAgent
from peerloom.testing.memory_replicas import dialer_of
from peerloom.testing.scripted_collective import Collective, CollectiveBrokenError, Membership
from peerloom.testing.scripted_session import ScriptedSession
from peerloom.testing.scripted_state import ScriptedState
from peerloom.testing.simulated_processes import ProcessRun
from peerloom.testing.training_script import TrainingScript
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
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


class ScriptedWorker:
    """As `peerloom.worker.run`: follows the trainer's commands until the job is over."""

    def __init__(self, run: ProcessRun, assignment: Assignment) -> None:
        self.run, self.assignment = run, assignment
        self._agent = JobsAgent(dialer_of(run), assignment.agent_address, assignment.job_id)
        session_dialer = dialer_of(run, retries=False)
        self.session = ScriptedSession(run, assignment, session_dialer, self._abort, self._form_ahead)
        self._script = TrainingScript()
        self._facts = run.world.observed
        self._chance = run.world.chance
        self._state: ScriptedState | None = None
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
                match await self.session.commands.get():  # type: ignore[misc]  # see ScriptedSession
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
        for member in self._members:
            member.close()

    @property
    def _members(self) -> list[Membership]:
        return [*self._formed_ahead.values(), *([self._member] if self._member else [])]

    @property
    def _steps_per_epoch(self) -> int:
        return -(-self._script.samples // self._spec.batch_size)

    @property
    def _total_steps(self) -> int:
        return int(self._steps_per_epoch * self._spec.epochs)

    async def _give_up(self, reason: str) -> None:
        failed = WorkerFailed(reason=reason, is_permanent=True)
        self.session.say(WorkerSessionRequest(failed=failed))
        while not isinstance(await self.session.commands.get(), EndWorker):  # type: ignore[misc]  # as above
            pass

    def _abort(self, abort: AbortGeneration) -> None:
        for member in self._members:
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
        with suppress(CollectiveBrokenError):  # whoever enters it sees that
            await member.gather("meet", None, config.collective_timeout_s)
            met = WorkerMet(generation=config.generation)
            self.session.answer(WorkerSessionRequest(met=met))

    def _new_member(self, config: ConfigureGeneration) -> Membership:
        collective: Collective = self._facts.collective(self.assignment, config)
        member = Membership(collective, config.rank, self.run)
        collective.join(member)
        return member

    async def _prepare(self, spec: JobSpec) -> ScriptedState:
        if self._state is None:
            if why_not := self.assignment.work.why_not(spec):
                raise PermissionDeniedError(why_not)
            self._script = self.run.world.scripts.of(spec.task)
            await asyncio.sleep(self._chance.uniform(*self._script.load_s))
            self._state, self._spec = ScriptedState(), spec
        return self._state

    def _say_prepared(self) -> None:
        prepared = WorkerPrepared(
            training_samples=self._script.samples,
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
        if why_over := self.session.why_over(config.generation):
            member.break_(why_over)
        try:
            if is_ahead:
                await self._meetings.pop(config.generation)
                member.check()
            elif config.world_size > 1:
                await member.gather("meet", None, config.collective_timeout_s)
            if config.newcomers:
                await self._take_state(member, config)
            await self._train(member, config)
        except CollectiveBrokenError as broken:
            member.close()
            step = self._state.step if self._state else 0
            self.session.set_position(step, 0)
            aborted = WorkerAborted(generation=config.generation, committed_step=step, reason=str(broken))
            self.session.say(WorkerSessionRequest(aborted=aborted))
        else:
            member.close()

    async def _take_checkpoint(self, config: ConfigureGeneration) -> ScriptedState | None:
        try:
            return ScriptedState.from_bytes(await self._agent.get(config.checkpoint_digest))
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
        states = {rank: ScriptedState.from_bytes(word) for rank, word in words.items()}
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
        session.progress.set_reporting(config.rank == 0)
        while True:
            member.check(state.step)
            if state.evaluated < state.step // self._steps_per_epoch:
                await member.gather(f"evaluate {state.evaluated + 1}", None, config.collective_timeout_s)
                state.evaluated += 1
                epoch, metric = state.evaluated, self._script.score(state)
                session.progress.add(
                    EpochProgress(epoch=epoch, metric_name=self._script.metric_name, metric=metric)
                )
            elif state.step < self._total_steps:
                session.progress.add(await self._step(member, config, state))
                session.set_position(state.step, config.generation)
                self._save_when_due(config)
            else:
                break
        session.say(WorkerSessionRequest(finished=await self._finish(config, state)))

    async def _step(
        self, member: Membership, config: ConfigureGeneration, state: ScriptedState
    ) -> StepProgress:
        began_s, step = self.run.world.loop.time(), state.step
        await self._follow_script(config, step + 1)
        await asyncio.sleep(self._chance.uniform(*self._script.step_s))
        await member.gather(f"step {step + 1}", None, config.collective_timeout_s)
        first = step % self._steps_per_epoch * self._spec.batch_size
        end, epoch = (
            min(first + self._spec.batch_size, self._script.samples),
            step // self._steps_per_epoch + 1,
        )
        state.trail.append((epoch, first, end, config.generation))
        step_s = self.run.world.loop.time() - began_s
        return StepProgress(
            step=step + 1,
            total_steps=self._total_steps,
            epoch=epoch,
            loss=self._script.loss(step + 1),
            samples=end - first,
            samples_per_s=(end - first) / step_s,
            step_s=step_s,
            first_sample=first,
            generation=config.generation,
            workers=config.world_size,
        )

    async def _follow_script(self, config: ConfigureGeneration, step: int) -> None:
        if step == self._script.fails_at:
            raise FailedPreconditionError(self._script.reason)
        scripts, job_id = self.run.world.scripts, self.assignment.job_id
        if scripts.is_lost(job_id, step, config.rank, self._spec.task):
            self.run.world.loop.later(0.0, self.run.process.kill, "its script says so")
            await asyncio.Event().wait()

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
            artifact = await self._agent.put(data, ArtifactKind.ARTIFACT_KIND_CHECKPOINT, "checkpoint")
        except PeerloomError:
            return  # the next one will do
        self.session.report_checkpoint(Checkpoint(step=step, epoch=epoch, artifact=artifact))

    async def _finish(self, config: ConfigureGeneration, state: ScriptedState) -> WorkerFinished:
        model = Artifact()
        if config.rank == 0:
            spec = self._spec
            data = state.to_bytes(self.run.world.models.origin(spec.task, dict(spec.task_arguments)))
            model = await self._agent.put(data, ArtifactKind.ARTIFACT_KIND_MODEL, "model.safetensors")
        return WorkerFinished(
            generation=config.generation,
            model=model,
            parameters_digest=parameters_digest(BytesIO(state.to_bytes())),
            training_s=1.0,
            samples=sum(end - first for _, first, end, _ in state.trail),
        )
