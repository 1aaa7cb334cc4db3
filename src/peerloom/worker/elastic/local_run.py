"""A loop without Peerloom: a generation of one, trained in a thread beside the script."""

import threading
from collections.abc import Callable

import torch

from peerloom.v1.trainer_pb2 import ConfigureGeneration, JobSpec
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.elastic.conversation import Conversation
from peerloom.worker.elastic.script_task import ScriptLoop, ScriptTask, Watcher
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.store_entries import StoreEntries


def begin_alone(
    conversation: Conversation[ScriptLoop], watcher: Watcher, seed: int, device: torch.device
) -> Callable[[], BaseException | None]:
    """Begins the training; returns what waits for its end, and gives what it failed with."""
    failures: list[BaseException] = []

    def train() -> None:
        try:
            _train(ScriptTask(conversation.wait_for_loop(), conversation, watcher), seed, device)
            conversation.close()
        except BaseException as error:
            failures.append(error)
            conversation.fail(error)

    thread = threading.Thread(target=train, name="training", daemon=True)

    def join() -> BaseException | None:
        thread.join()
        return failures[0] if failures else None

    thread.start()
    return join


def _train(task: ScriptTask, seed: int, device: torch.device) -> None:
    spec = JobSpec(
        epochs=task.epochs, batch_size=task.batch_size, learning_rate=task.learning_rate, seed=seed
    )
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        training = ScriptTraining(task, spec, device)
    entries = StoreEntries(1, lambda entry: None)
    group = Group(ConfigureGeneration(generation=1, world_size=1), device, entries)
    try:
        train_generation(
            training,
            group,
            Joining(group, training.state),
            Balance([1], is_fixed=True),
            lambda progress: None,
            lambda step: None,
            Auditor(lambda message: None),
        )
    finally:
        group.close()
