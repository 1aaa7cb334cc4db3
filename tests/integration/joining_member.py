"""A process that trains a task of its own as its standard input says: who has the state, who lacks it.

Lines of JSON: {"fresh": {...}} begins with a model that knows nothing; {"work": {...}} joins a generation and
trains to its end, or until it breaks; {"break": true} breaks it. The state leaves a donor only once that one
has committed `gate_step` steps, so that the others surely go on before. It answers with lines of JSON on
standard output, and meets the others through the hub at argv[1].
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import TensorDataset

from benchmarks.entry_hub import HubEntries
from peerloom.kit.logs import configure_logs
from peerloom.v1.trainer_pb2 import ConfigureGeneration, EpochProgress, JobSpec, StepProgress
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.elastic.elastic_run import elastic
from peerloom.worker.elastic.hosting import host_script
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.group.process_group import GenerationBrokenError, Group
from peerloom.worker.joining import catch_up, participants
from peerloom.worker.loop import train_generation
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Samples, Split, Task
from peerloom.worker.training import Training
from peerloom.worker.training_state import TrainingState

SAMPLES, BATCH = 48, 8  # six batches an epoch
SHOWN_BYTES = 10_000
works: "queue.Queue[dict[str, Any]]" = queue.Queue()
groups: list[Group] = []
gate = threading.Event()


class Square(Task):
    """A square layer with `width` inputs and outputs, under batch normalisation."""

    def __init__(self, width: int, stops_at: int = 0) -> None:
        self.width = width
        self.stops_at = stops_at  # the batch, from 1, in which this worker stays
        self.batches = 0

    def model(self) -> torch.nn.Sequential:
        return torch.nn.Sequential(torch.nn.Linear(self.width, self.width), torch.nn.BatchNorm1d(self.width))

    def data(self) -> tuple[Samples, Samples]:
        chance = torch.Generator().manual_seed(3)
        inputs = torch.randn(SAMPLES, self.width, generator=chance)
        return Split(inputs, inputs.argmax(dim=1)), Split(inputs[:5], inputs[:5].argmax(dim=1))

    def batch(self, split: Samples, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.batches += 1
        if self.batches == self.stops_at:
            say({"stops_at": self.batches})
            threading.Event().wait()
        return super().batch(split, indices)


class Named(torch.nn.Sequential):
    """Takes its input by name, and gives outputs as Hugging Face's models do."""

    def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": super().forward(values)}


class Whole(Square):
    """The same with all that a task may have: named inputs, schedule, clipping, half precision, pieces."""

    clip_norm = 0.1
    autocast = "fp16"
    micro_batch = 2

    def model(self) -> torch.nn.Sequential:
        return Named(*super().model().children())

    def data(self) -> tuple[Samples, Samples]:
        train, test = super().data()
        return Split({"values": train.inputs}, train.targets), Split({"values": test.inputs}, test.targets)

    def scheduler(
        self, optimiser: torch.optim.Optimizer, total_steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps)


def say(message: object) -> None:
    os.write(sys.stdout.fileno(), f"{json.dumps(message)}\n".encode())


def listen() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        if "break" in command:
            groups[-1].break_from_outside("the parent said so")
        else:
            works.put(command)
    os._exit(0)


class LateStateDonor(participants.StateDonor):
    """Gives what it has copied only once the gate is open."""

    def give(self, make: Callable[[], bytes]) -> None:
        def make_later() -> bytes:
            gate.wait()
            return make()

        super().give(make_later)


def spoil(state: TrainingState) -> None:
    """What this newcomer gets differs a little from what was sent."""
    take = state.take

    def take_wrongly(tensors: dict[str, torch.Tensor]) -> None:
        state.take = take  # type: ignore[method-assign]  # only once
        take(tensors)
        with torch.no_grad():
            next(state.model.parameters())[0, 0] += 1.0

    state.take = take_wrongly  # type: ignore[method-assign]  # on purpose, for this process


class Counter:
    """Something that a script has travel with the state: how many steps it has made."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


class Shelves(Sharded):
    """The samples of `Square` on shelves of unequal length, which are read in order."""

    def __init__(self, split: Split) -> None:
        super().__init__([20, 4, 16, 8])
        self.split = split

    def read(self, shard: int, epoch: int, first: int) -> Iterator[Any]:
        place, length = sum(self.shard_samples[:shard]), self.shard_samples[shard]
        return iter([self.split[number] for number in range(place + first, place + length)])


def script_of(setting: dict[str, Any]) -> Callable[[], None]:
    """What `Square` trains, as a script with a loop of its own."""

    def run_script() -> None:
        torch.manual_seed(setting.get("begins_with", 1))
        square, counter, batches = Square(setting["width"]), Counter(), 0
        train = square.data()[0]
        assert isinstance(train, Split)
        with elastic(clip_norm=1.0, micro_batch=setting.get("micro_batch")) as run:
            model = square.model()[0]  # what normalises would see the shares
            run.prepare(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
            if setting.get("registers"):
                run.register("counter", counter)
            shelves = Shelves(train) if setting.get("streams") else None
            samples = shelves or TensorDataset(train.inputs, train.targets)
            for inputs, targets in run.batches(samples, batch_size=BATCH, epochs=setting["epochs"]):
                batches += 1
                if run.steps == setting.get("leaves_after"):
                    run.stop()
                    continue
                if batches == setting.get("stops_at"):
                    say({"stops_at": batches})
                    threading.Event().wait()
                counter.steps += run.step(torch.nn.functional.cross_entropy(model(inputs), targets))
        say({"counted": counter.steps, "of_batches": batches, "rank": run.rank, "size": run.size})

    return run_script


def game_of(setting: dict[str, Any]) -> Callable[[], None]:
    """Two models with an optimiser each, one of which rests in every second batch; may end its loop early."""

    def run_script() -> None:
        torch.manual_seed(setting["begins_with"])
        width = setting.get("width", 4)
        maker = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))
        judge = torch.nn.Linear(2, 1)
        by_maker = torch.optim.Adam(maker.parameters(), 0.05)
        by_judge = torch.optim.SGD(judge.parameters(), 0.1)
        chance = torch.Generator().manual_seed(3)
        samples = TensorDataset(
            torch.randn(SAMPLES, 2, generator=chance), torch.randn(SAMPLES, 3, generator=chance)
        )
        with elastic(clip_norm=1.0) as run:
            run.prepare(maker, judge, by_maker, by_judge)
            for real, noise in run.batches(samples, batch_size=BATCH, epochs=setting["epochs"]):
                if run.steps == setting.get("leaves_after"):
                    break
                made = maker(noise)
                losses = {by_judge: judge(made.detach()).mean() - judge(real).mean()}
                if run.steps % 2 == 0:
                    losses[by_maker] = -judge(made).mean() + made.square().mean()
                run.step(losses)
        say({"ended_at": run.steps, "rank": run.rank})

    return run_script


def begin(setting: dict[str, Any]) -> Training:
    sync = setting.get("sync", "")
    spec = JobSpec(epochs=setting["epochs"], batch_size=BATCH, learning_rate=0.1, seed=1, sync=sync)
    training: Training
    if setting.get("script"):
        script = host_script((game_of if setting.get("plays") else script_of)(setting), torch.device("cpu"))
        training = ScriptTraining(script, spec, torch.device("cpu"))
    else:
        kind = Whole if setting.get("whole") else Square
        training = Training(kind(setting["width"], setting.get("stops_at", 0)), spec, torch.device("cpu"))
    room_bytes = setting.get("memory_bytes", 10**9)
    catch_up._free_bytes = lambda _: room_bytes  # type: ignore[attr-defined]  # on purpose, for this process
    if setting.get("spoils"):
        spoil(training.state)
    return training


def train(training: Training, told: dict[str, Any]) -> None:
    config = ConfigureGeneration(
        generation=told["generation"],
        rank=told["rank"],
        world_size=told["world_size"],
        collective_timeout_s=60,
        newcomers=told.get("newcomers", 1),
    )
    group = Group(config, torch.device("cpu"), entries.of(told["generation"]), mesh_host="127.0.0.1")
    groups.append(group)
    state, epochs = training.state, []
    if told.get("leave_at"):
        group.leave_at(told["leave_at"], "as planned")

    def report(progress: StepProgress | EpochProgress) -> None:
        if isinstance(progress, EpochProgress):
            epochs.append([progress.epoch, progress.loss, progress.metric])

    def say_admitted() -> None:
        say({"admitted": state.step, "kept": catching_up.most_kept if catching_up else 0})

    def on_step(_: int) -> None:
        say({"step": seat.step, "own": state.step})
        if seat.step >= told.get("gate_step", 0):
            gate.set()

    try:
        group.form()
        step_s = told["step_s"]
        seat = participants.begin_joining(
            state, training.schedule, group, config.newcomers, "127.0.0.1", step_s, say_admitted
        )
        if not config.newcomers and not training.begins_alike:
            participants.agree_on_beginning(state, group)
        catching_up = seat.catch_up
        say(
            {
                "entered": seat.step,
                "catches_up": catching_up is not None,
                "newcomers": len(seat.newcomers),
                "source": seat.source,
            }
        )
        balance = Balance([1] * group.world_size, is_fixed=True)
        train_generation(training, group, seat, balance, report, on_step, Auditor(lambda message: None))
        found = {"fingerprint": state.fingerprint(), "epochs": epochs}
        buffers = [buffer.tolist() for buffer in state.model.buffers()]
        if state.size_bytes() < SHOWN_BYTES:
            found["parameters"] = [p.flatten().tolist() for p in state.model.parameters()]
        say({"finished": state.parameters_digest(), "buffers": buffers, **found})
    except (GenerationBrokenError, RuntimeError) as error:
        say({"broken": state.step, "reason": str(error)})
    group.close()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    entries = HubEntries(sys.argv[1])
    torch.set_num_threads(1)
    configure_logs("worker")
    threading.Thread(target=listen, daemon=True).start()
    participants.StateDonor = LateStateDonor  # type: ignore[misc]  # on purpose, for this process
    say("started")
    while True:
        told = works.get()
        if "fresh" in told:
            made = begin(told["fresh"])
            say("ready")
        else:
            gate.clear()
            train(made, told["work"])
