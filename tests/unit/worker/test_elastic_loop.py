"""An elastic loop alone in a process is plain torch, bit for bit; in a group that breaks it begins again."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_broken_step import new_group, train
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import peerloom
from peerloom.errors import DataLossError, InvalidArgumentError, PeerloomError
from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec, StepProgress
from peerloom.worker.elastic import hosting
from peerloom.worker.elastic.elastic_run import ElasticRun
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.schedule import Schedule

CPU = torch.device("cpu")
COUNT, BATCH, EPOCHS = 50, 12, 3  # the last batch of an epoch has two samples
CHANCE = torch.Generator().manual_seed(5)
INPUTS, LABELS = torch.randn(COUNT, 6, generator=CHANCE), torch.arange(COUNT) % 3
ROWS = [{"x": row.tolist(), "y": int(label)} for row, label in zip(INPUTS, LABELS, strict=True)]


def parts() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.05)
    return model, optimiser, torch.optim.lr_scheduler.StepLR(optimiser, step_size=4, gamma=0.5)


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch["x"]), batch["y"])


def plain(autocast: str | None = None, pieces: int = 1, clip_norm: float | None = None) -> list[Tensor]:
    """The parameters after an ordinary loop over the same batches."""
    model, optimiser, scheduler = parts()
    schedule = Schedule(COUNT, BATCH, EPOCHS, seed=9)
    for step in range(schedule.total_steps):
        first, end = schedule.bounds(step)
        chosen = schedule.order(schedule.epoch_of(step))[first:end]
        for piece in chosen.tensor_split(pieces):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
                loss = loss_of(model, {"x": INPUTS[piece], "y": LABELS[piece]})
            (loss.float() * (len(piece) / len(chosen))).backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimiser.step()
        optimiser.zero_grad()
        scheduler.step()
    return [each.detach() for each in model.parameters()]


def looped(**settings: Any) -> list[Tensor]:
    with peerloom.elastic(seed=9, **settings) as run:
        model, _, _ = run.prepare(*parts())
        for batch in run.batches(ROWS, batch_size=BATCH, epochs=EPOCHS):
            run.step(loss_of(model, batch))
    return [each.detach() for each in model.parameters()]


@pytest.mark.parametrize("autocast", [None, "bf16"])
def test_a_loop_alone_is_plain_torch_bit_for_bit(autocast: str | None) -> None:
    torch.testing.assert_close(looped(autocast=autocast), plain(autocast), rtol=0, atol=0)


def test_pieces_add_up_and_the_whole_gradient_is_clipped() -> None:
    settings = {"micro_batch": 6, "clip_norm": 0.05}
    expected = plain(pieces=2, clip_norm=0.05)
    torch.testing.assert_close(looped(**settings), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(expected[0], plain()[0]), "the norm is above that"


def test_half_precision_with_a_scale_trains() -> None:
    torch.testing.assert_close(looped(autocast="fp16"), plain(), rtol=0.3, atol=0.05)


def test_a_data_loader_that_shuffles_is_taken_apart_and_epochs_are_measured() -> None:
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=BATCH, shuffle=True)
    sizes, steps = [], []
    with peerloom.elastic() as run:
        model, _ = run.prepare(*parts()[:2])
        run.evaluate(lambda batch: (model(batch[0]).argmax(1) == batch[1]).float(), loader.dataset)
        for inputs, labels in run.batches(loader, epochs=2):
            sizes.append(len(labels))
            steps.append(run.step(functional.cross_entropy(model(inputs), labels)))
    assert sizes == [12, 12, 12, 12, 2] * 2
    assert steps == [True] * 10
    assert [each.epoch for each in run.epochs] == [1, 2]
    right = (model(INPUTS).argmax(1) == LABELS).float().mean()
    assert run.epochs[-1].metric == pytest.approx(float(right))
    assert (run.rank, run.size, run.is_main) == (0, 1, True)


def test_without_anything_to_evaluate_the_metric_is_the_loss(tmp_path: Any) -> None:
    with peerloom.elastic() as run:
        model, _ = run.prepare(*parts()[:2])
        losses = []
        for batch in run.batches(ROWS, batch_size=25):
            run.step(loss := loss_of(model, batch))
            losses.append(float(loss.detach()))
        run.save(tmp_path / "model.safetensors")
    assert run.epochs[0].metric == run.epochs[0].loss == pytest.approx(sum(losses) / 2)
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "model.safetensors")
    torch.testing.assert_close(stored, dict(model.state_dict()), rtol=0, atol=0)


def prepared(run: ElasticRun) -> Iterator[Any]:
    run.prepare(*parts())
    return run.batches(ROWS, batch_size=BATCH)


def two_steps(run: ElasticRun) -> None:
    model, *_ = run.prepare(*parts())
    for batch in run.batches(ROWS):
        run.step(loss_of(model, batch))
        run.step(loss_of(model, batch))


def own_gradients(run: ElasticRun) -> None:
    model, *_ = run.prepare(*parts())
    for batch in run.batches(ROWS, batch_size=BATCH):
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        run.step(loss_of(model, batch))


def at_once(run: ElasticRun) -> None:
    for _ in prepared(run):
        break


def unlike(run: ElasticRun, change: Callable[[Tensor], Any]) -> None:
    model, *_ = run.prepare(*parts())
    for batch in run.batches(ROWS):
        run.step(change(model(batch["x"])))


def other_parameters(run: ElasticRun) -> None:
    run.prepare(parts()[0], parts()[1])
    next(run.batches(ROWS))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda run: (run.prepare(*parts()), run.prepare(*parts())), "prepare was called twice"),
        (lambda run: run.prepare(parts()[1]), "AdamW.*one at least"),
        (lambda run: run.prepare(*parts(), None), "NoneType"),
        (lambda run: run.prepare(*parts()[:2], parts()[2]), "of another optimiser"),
        (lambda run: run.batches(ROWS), "run.prepare"),
        (lambda run: run.step(torch.tensor(1.0)), "without a batch"),
        (lambda run: run.register("it", object()), "state_dict"),
        (lambda run: list(prepared(run)), "without run.step"),
        (lambda run: (prepared(run), run.evaluate(lambda batch: batch, ROWS)), "before"),
        (two_steps, "without a batch"),
        (own_gradients, r"leave out loss.backward\(\)"),
        (at_once, "left before its first step"),
        (lambda run: run.stop(), "before the loop"),
        (lambda run: unlike(run, lambda outputs: outputs.mean(dim=1)), r"\[32\].*a scalar"),
        (lambda run: unlike(run, lambda outputs: outputs.mean().item()), "float.*a scalar"),
        (lambda run: unlike(run, lambda outputs: outputs.mean().detach()), "without a gradient"),
        (other_parameters, "isn't the model's"),
        (lambda run: (run.prepare(*parts()), run.batches([])), "at least one sample"),
        (lambda run: (run.prepare(*parts()), run.batches(iter(ROWS))), "map-style"),
        (lambda run: (run.prepare(*parts()), run.batches(ROWS, batch_size=0)), "from 1"),
    ],
)
def test_what_is_wrong_is_said(body: Callable[[ElasticRun], Any], message: str) -> None:
    with pytest.raises(PeerloomError, match=message), peerloom.elastic() as run:
        body(run)


@pytest.mark.parametrize("setting", [{"clip_norm": 0}, {"autocast": "fp8"}, {"micro_batch": 1.5}])
def test_settings_have_limits(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(setting))), peerloom.elastic(**setting) as run:
        prepared(run)


def test_one_of_torchrun_s_processes_would_train_alone_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PeerloomError, match="peerloom train"):
        peerloom.elastic()


@pytest.mark.parametrize("way", ["break", "stop", "stop and break", "exit"])
def test_a_loop_that_is_left_keeps_the_steps_it_has_made(way: str) -> None:
    """Seven of fifteen steps; what is stopped before its step still makes it."""
    steps: list[bool] = []

    def leaving(run: ElasticRun, model: nn.Module) -> None:
        for batch in run.batches(ROWS, batch_size=BATCH, epochs=EPOCHS):
            if way == "stop" and run.steps == 6:
                run.stop()
            if run.steps == 7:
                assert way != "stop"
                break
            steps.append(run.step(loss_of(model, batch)))
            if way == "stop and break" and run.steps == 7:
                run.stop()
                break
            if way == "exit" and run.steps == 7:
                sys.exit(0)
        assert run.steps == 7
        assert [each.epoch for each in run.epochs] == [1]

    model, optimiser, scheduler = parts()
    with contextlib.suppress(SystemExit), peerloom.elastic(seed=9) as run:
        run.prepare(model, optimiser, scheduler)
        leaving(run, model)
    assert steps == [True] * 7
    assert scheduler.get_last_lr() == [0.025], "it halves the rate each fourth step"


class SlowRows(Dataset[Tensor]):
    """Inputs, of which all but the first take a while, and draw from the process's own random numbers."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        for _ in range(1000 if self.read else 0):
            torch.rand(10_000)
        self.read.append(index)
        return INPUTS[index]


def test_nothing_trains_on_behind_a_loop_that_is_left() -> None:
    """Once a script leaves after its step the next batch is read: that is over when the block is."""
    rows = SlowRows()
    with contextlib.suppress(SystemExit), peerloom.elastic() as run:
        model, *_ = run.prepare(*parts())
        for batch in run.batches(rows, batch_size=1):
            run.step(model(batch).mean())
            sys.exit(0)
    assert sorted(rows.read) == [0, 1]
    assert "training" not in [each.name for each in threading.enumerate()]


def test_nothing_trains_on_behind_a_loop_that_fails() -> None:
    with contextlib.suppress(ZeroDivisionError), peerloom.elastic() as run:
        for _ in prepared(run):
            raise ZeroDivisionError("a line of the script's own")
    assert "training" not in [each.name for each in threading.enumerate()]


class Average:
    """A running mean of the parameters, as scripts keep one."""

    def __init__(self, model: nn.Module) -> None:
        self.mean = [each.detach().clone() for each in model.parameters()]
        self.count = 0

    def update(self, model: nn.Module) -> None:
        self.count += 1
        for mean, each in zip(self.mean, model.parameters(), strict=True):
            mean.lerp_(each.detach(), 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "count": self.count, "of": ("parameters", None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean, self.count = state["mean"], state["count"]


class Hosted:
    """A script in a thread, trained here as a worker would: `on_batch` hears of each of its batches."""

    def __init__(self, on_batch: Callable[[int], None] = lambda number: None, leaves_after: int = -1) -> None:
        self._leaves_after = leaves_after
        self.batches: list[Tensor] = []
        self.chance: list[float] = []
        self.averages: list[Average] = []
        self._on_batch = on_batch
        task = hosting.host_script(self._run, CPU)
        spec = JobSpec(epochs=1, batch_size=BATCH, learning_rate=0.05, seed=9)
        self.training = ScriptTraining(task, spec, CPU)
        self.steps: list[StepProgress] = []

    def _run(self) -> None:
        with peerloom.elastic() as run:
            model, *_ = run.prepare(*parts())
            self.averages.append(Average(model))
            run.register("average", self.averages[0])
            for batch in run.batches(ROWS, batch_size=BATCH):
                if run.steps == self._leaves_after:
                    break
                self.batches.append(batch["x"])
                self.chance.append(float(torch.rand(())))
                run.log(chance=self.chance[-1], number=len(self.batches))
                self._on_batch(len(self.batches))
                if run.step(loss_of(model, batch)):
                    self.averages[0].update(model)
                run.log(average=self.averages[0].count)

    def train(self, group: Any) -> None:
        train(self.training, group, self._note)

    def _note(self, progress: StepProgress | EpochProgress) -> None:
        if isinstance(progress, StepProgress):
            self.steps.append(progress)


@pytest.fixture(autouse=True)
def no_host() -> Iterator[None]:
    yield
    hosting._hosts.clear()


def test_a_broken_step_comes_again_with_its_samples_and_its_chance_and_is_logged_once() -> None:
    """Five steps; the third breaks while its loss is computed."""
    first, second = new_group(1), new_group(2)

    def break_third(number: int) -> None:
        if number == 3:
            first.break_from_outside("a peer fell silent")

    undisturbed, broken = Hosted(), Hosted(break_third)
    undisturbed.train(new_group(1))
    with pytest.raises(GenerationBrokenError):
        broken.train(first)
    broken.train(second)
    first.close()
    assert len(broken.batches) == 6
    assert torch.equal(broken.batches[2], broken.batches[3])
    assert broken.chance[2] == broken.chance[3]
    assert [step.metrics["number"] for step in broken.steps] == [1, 2, 4, 5, 6]
    assert [step.metrics["average"] for step in broken.steps] == [1, 2, 3, 4, 5]
    assert broken.training.state.parameters_digest() == undisturbed.training.state.parameters_digest()
    torch.testing.assert_close(broken.averages[0].mean, undisturbed.averages[0].mean, rtol=0, atol=0)


def test_who_has_left_stays_so_in_a_new_generation_and_a_script_that_fails_fails() -> None:
    left = Hosted(leaves_after=3)
    for number in (1, 2):
        left.train(new_group(number))
        assert left.training.state.step == 3

    def fail(number: int) -> None:
        raise ValueError("out of paper")

    with pytest.raises(InvalidArgumentError, match="out of paper"):
        Hosted(fail).train(new_group(1))


def test_what_is_registered_travels_with_the_state() -> None:
    gate = threading.Event()
    ahead, behind = Hosted(), Hosted(lambda number: gate.set())
    ahead.train(new_group(1))
    behind.training.state.from_bytes(ahead.training.state.to_bytes())
    assert behind.averages[0].count == 5
    torch.testing.assert_close(behind.averages[0].mean, ahead.averages[0].mean, rtol=0, atol=0)
    behind.train(new_group(1))
    assert not gate.is_set(), "no batch is left"
    behind.training.state.registered.clear()
    with pytest.raises(DataLossError, match="registered average"):
        behind.training.state.from_bytes(ahead.training.state.to_bytes())


def test_a_job_that_asks_for_what_a_script_cannot_do_is_refused() -> None:
    task = Hosted().training.task
    for asked in ({"robust": "median"}, {"sync": "period=4"}):
        with pytest.raises(InvalidArgumentError, match="script"):
            ScriptTraining(task, JobSpec(epochs=1, batch_size=4, learning_rate=0.1, **asked), CPU)


def test_a_script_that_fails_or_has_no_loop_is_refused_with_its_error() -> None:
    def fails() -> None:
        raise ValueError("no data here")

    with pytest.raises(InvalidArgumentError, match="the script failed: ValueError: no data here"):
        hosting.host_script(fails, CPU)
    with pytest.raises(InvalidArgumentError, match="without a loop"):
        hosting.host_script(lambda: None, CPU)


def test_only_a_script_in_the_job_s_code_is_run(tmp_path: Any) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "outside.py").write_text("")
    (code / "inside.py").write_text("")
    assert hosting.find_script("inside.py", code) == code / "inside.py"
    for script, folder in (
        ("../outside.py", code),
        (str(tmp_path / "outside.py"), code),
        ("inside.py", None),
    ):
        with pytest.raises(PeerloomError, match="has no script"):
            hosting.find_script(script, folder)


def test_an_error_in_the_loop_s_body_is_the_user_s_own_and_ends_the_training() -> None:
    found: list[threading.Thread] = []

    def body(run: ElasticRun) -> None:
        run.prepare(*parts())
        for _ in run.batches(ROWS):
            found.extend(each for each in threading.enumerate() if each.name == "training")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), peerloom.elastic() as run:
        body(run)
    found[-1].join(60)
    assert not found[-1].is_alive()
