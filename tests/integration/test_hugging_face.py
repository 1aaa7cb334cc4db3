"""A Hugging Face model is trained as it is: rows of a tokenizer, outputs with logits, its own schedule."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from peerloom.errors import FailedPreconditionError
from peerloom.inference.server.building import read_blueprint
from peerloom.inference.trusted_modules import BY_USER, TrustedModules
from peerloom.v1.trainer_pb2 import ConfigureGeneration, EpochProgress, JobSpec, StepProgress
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.description import origin_of
from peerloom.worker.group.process_group import Group
from peerloom.worker.joining.participants import Joining
from peerloom.worker.loop import train_generation
from peerloom.worker.model_origin import read_origin
from peerloom.worker.result import training_gflops
from peerloom.worker.store_entries import StoreEntries
from peerloom.worker.task import load_task
from peerloom.worker.training import Training

NAME = "hugging_face:Mood"
EXAMPLES = Path(__file__).parents[2] / "examples"
LEAST_ACCURACY = 0.95  # eight seeds gave 1.0


@pytest.fixture(scope="module")
def trained() -> Iterator[tuple[Training, list[EpochProgress]]]:
    """The example, trained with its defaults by one worker; and what that told of its epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.syspath_prepend(str(EXAMPLES))
        pytest.importorskip("transformers", reason="needs transformers (peerloom[hf])")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        task = load_task(NAME, {})
        spec = JobSpec(
            task=NAME,
            epochs=task.epochs,
            batch_size=task.batch_size,
            learning_rate=task.learning_rate,
            seed=1,
        )
        training = Training(task, spec, torch.device("cpu"))
        entries = StoreEntries(1, lambda entry: None)
        group = Group(ConfigureGeneration(generation=1, world_size=1), torch.device("cpu"), entries)
        epochs: list[EpochProgress] = []

        def report(progress: StepProgress | EpochProgress) -> None:
            if isinstance(progress, EpochProgress):
                epochs.append(progress)

        joining, balance = Joining(group, training.state), Balance([1], is_fixed=True)
        auditor = Auditor(lambda message: None)
        train_generation(training, group, joining, balance, report, lambda step: None, auditor)
        group.close()
        yield training, epochs
        torch.set_num_threads(threads)


def test_it_learns_with_rows_by_name_a_warm_up_and_clipping(
    trained: tuple[Training, list[EpochProgress]],
) -> None:
    training, epochs = trained
    assert [progress.epoch for progress in epochs] == [1, 2, 3]
    assert epochs[-1].metric >= LEAST_ACCURACY
    assert training.state.step == 90
    assert training.state.updater.learning_rate == 0.0, "the schedule came to its end"
    assert training_gflops(training.task, training.train, training.state.model, 1e-3) > 0


def test_a_newcomer_goes_on_from_its_state(trained: tuple[Training, list[EpochProgress]]) -> None:
    training, _ = trained
    spec = JobSpec(task=NAME, epochs=3, batch_size=32, learning_rate=0.002, seed=2)
    newcomer = Training(load_task(NAME, {}), spec, torch.device("cpu"))
    assert newcomer.state.fingerprint() != training.state.fingerprint()
    newcomer.state.from_bytes(training.state.to_bytes())
    assert newcomer.state.fingerprint() == training.state.fingerprint()


def test_its_file_says_what_it_takes_and_inference_says_why_it_does_not_answer(
    trained: tuple[Training, list[EpochProgress]], tmp_path: Path
) -> None:
    training, _ = trained
    path = tmp_path / "model.safetensors"
    origin = origin_of(training.task, NAME, {}, training.train, training.state.model)
    path.write_bytes(training.state.model_bytes(origin.to_metadata()))
    with safe_open(path, framework="pt") as file:
        assert read_origin(file.metadata(), "d" * 64).input_names == ("input_ids", "attention_mask")
    with pytest.raises(FailedPreconditionError, match=r"2 inputs \(input_ids, attention_mask\)") as caught:
        read_blueprint(path, "d" * 64, TrustedModules((), BY_USER))
    assert caught.value.reason == "MODEL_TAKES_SEVERAL_INPUTS"
