"""The interface of what Peerloom trains: subclass `Task`, name it module:Class, and hand it in."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset, TensorDataset

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import RawInput
from peerloom.worker.batches import Nest, collated, each_tensor, form_of, logits_of, moved, sample_count
from peerloom.worker.preparing import prepared
from peerloom.worker.sharded import Sharded
from peerloom.worker.task_checks import check_defaults, check_per_sample
from peerloom.worker.tasks.built_in import check_arguments, resolve
from peerloom.worker.tasks.importing import construct, import_class

LOSS_METRIC = "loss"  # of a task without test samples


class Samples(Protocol):
    """Any map-style dataset: torch's own, Hugging Face's, or a plain list. See `Task.data`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Split(Dataset[tuple[Nest, Nest]]):
    """Samples in memory: `inputs` [n, ...] and `targets` [n, ...], where sample i is inputs[i], targets[i].

    Both are tensors, or tuples, lists or mappings of such. Raises InvalidArgumentError when not all have the
    same length.
    """

    inputs: Nest
    targets: Nest

    def __post_init__(self) -> None:
        try:
            sample_count([self.inputs, self.targets], "a split")
        except InvalidArgumentError as error:
            found = f"inputs {form_of(self.inputs)} and targets {form_of(self.targets)}"
            raise InvalidArgumentError(
                f"A split needs inputs [n, ...] and targets [n, ...], but got {found}."
            ) from error

    def __len__(self) -> int:
        return sample_count(self.inputs, "a split")

    def __getitem__(self, index: int) -> tuple[Nest, Nest]:
        inputs, targets = each_tensor(lambda tensor: tensor[index], (self.inputs, self.targets))
        return inputs, targets


class Task(ABC):
    """What to train: a model, its data, and, where the defaults don't do, its loss, optimiser and metric.

    Only `model` and `data` have to be written. The whole of a file lines.py that finds the side of a line
    on which a point lies, handed in as "lines:Lines" where lines.py can be imported on every node:

        import torch
        from peerloom.worker.task import Split, Task

        class Lines(Task):
            epochs = 5

            def __init__(self, slope: str = "0.5") -> None:
                self.slope = float(slope)

            def model(self) -> torch.nn.Module:
                return torch.nn.Linear(2, 2)

            def data(self) -> tuple[Split, Split]:
                points = torch.rand(1000, 2, generator=torch.Generator().manual_seed(7))
                sides = (points[:, 1] > self.slope * points[:, 0]).long()
                return Split(points[:800], sides[:800]), Split(points[800:], sides[800:])

    Arguments of a job, e.g. {"slope": "0.3"}, reach the constructor as keywords, always as text; a
    constructor that doesn't like one raises ValueError with a sentence for the user. A task without a
    constructor takes no arguments.

    Every worker makes its own instance, so all of them must come to the same thing: `data` gives the same
    samples in the same order on every node, and `model` takes its random numbers from torch's global
    generator only, which the worker seeds right before it calls. A model must not keep state outside its
    parameters and buffers.

    `epochs`, `batch_size` (samples a batch over all workers together) and `learning_rate` hold where a job
    doesn't say otherwise; `metric_name` is what reports call the mean of `metric`.

    `raw_input`, which may be left out, declares what a raw sample is, how it becomes the model's tensor, and
    the names of the classes (see peerloom.RawInput). `data` gives raw samples then, `batch` makes tensors of
    them, and the model carries the declaration: whoever asks it gives raw samples too. Without it, `data`
    gives the tensors that the model takes, and so does whoever asks it.

    Inputs and targets may be tuples, lists or mappings of tensors: the model is called as model(*inputs) or
    model(**inputs) then. Of samples that are mappings the entry `targets_key` is the target.

    `clip_norm`, if set, is the largest norm of the whole gradient; a larger one is scaled down. `autocast`,
    "bf16" or "fp16", is what forward pass and loss compute in while training; parameters, updates and
    evaluation stay in single precision. With "fp16" gradients are scaled, and a step in which they overflow
    changes no parameter. `micro_batch` is the most samples that a worker computes at once, where memory has
    no room for its whole share of a batch; their gradients add up.
    """

    epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    metric_name: str = "accuracy"
    raw_input: RawInput | None = None
    targets_key: str = "labels"
    clip_norm: float | None = None
    autocast: str | None = None
    micro_batch: int | None = None

    @abstractmethod
    def model(self) -> nn.Module:
        """A fresh model on the CPU; the worker moves it to its accelerator."""

    @abstractmethod
    def data(self) -> tuple[Samples | Sharded, Samples]:
        """The training and the test samples: each a `Split`, or any map-style dataset.

        Training samples that can only be read in order are a `peerloom.worker.sharded.Sharded`.

        Its samples are pairs (input, target), mappings, or whatever `collate` takes.
        """

    def batch(self, split: Samples, indices: Tensor) -> tuple[Nest, Nest]:
        """Inputs [n, ...] and targets [n, ...] of the samples `indices` (int64, [n]), both on the CPU.

        Tensors in memory are picked in one operation; the samples of other datasets are read one by one
        and put together by `collate`. Raw inputs are prepared as `raw_input` says. Augmentation belongs here.
        """
        if isinstance(split, Split):
            pair = (split.inputs, split.targets)
            inputs, targets = each_tensor(lambda tensor: tensor.index_select(0, indices), pair)
        elif isinstance(split, TensorDataset) and len(split.tensors) == 2:
            inputs, targets = split[indices]
        else:
            inputs, targets = self.collate([split[index] for index in indices.tolist()])
        return prepared(inputs, self.raw_input), targets

    def collate(self, rows: list[Any]) -> tuple[Nest, Nest]:
        """Inputs and targets [n, ...] of n samples that aren't tensors in memory, by torch's default_collate.

        Unless overridden, samples are pairs, or mappings from which the entry `targets_key` is taken as the
        target. Override it for others, and where samples must be padded to be put together.
        """
        return collated(rows, self.targets_key, type(self).__name__)

    def loss(self, outputs: Nest, targets: Nest) -> Tensor:
        """The loss of each sample, [n], not their mean: cross-entropy of the logits unless overridden.

        A batch is shared out among workers in unequal parts. The worker divides the sum over its part by
        the size of the whole batch, so that the sum of all workers' gradients is that of the unsplit batch.
        """
        return functional.cross_entropy(logits_of(outputs), targets, reduction="none")

    def optimiser(
        self, parameters: Iterable[nn.Parameter], learning_rate: float
    ) -> Optimizer | Sequence[Optimizer]:
        """What turns gradients into an update: SGD with momentum 0.9 unless overridden.

        Several share the parameters out among them.
        """
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)

    def scheduler(self, optimiser: Any, total_steps: int) -> LRScheduler | Sequence[LRScheduler] | None:
        """The schedule of the learning rate over the job's `total_steps` updates; None, unless overridden.

        It is stepped once after each update, on all workers alike; one that asks for a metric, as
        ReduceLROnPlateau does, after each epoch, with that epoch's. `optimiser` is what `optimiser` gave.
        """
        return None

    def metric(self, outputs: Nest, targets: Nest) -> Tensor:
        """The score of each sample, [n], whose mean over the test set is reported.

        Unless overridden: 1.0 where the largest logit is the target's, else 0.0.
        """
        right: Tensor = logits_of(outputs).argmax(dim=1) == targets
        return right.float()


def load_task(name: str, arguments: Mapping[str, str]) -> Task:
    """The task `name`, a built-in one or "module:Class", made with its `arguments`.

    Raises NotFoundError for a task, module or class that isn't there, and InvalidArgumentError for a class
    that isn't a whole Task, defaults outside their limits, or arguments that the task refuses.
    """
    entry = resolve(name)
    if entry is not None:
        check_arguments(entry, arguments)
    found = import_class(entry.path if entry else name)
    if not issubclass(found, Task):
        raise InvalidArgumentError(
            f"{name} isn't a subclass of peerloom.worker.task.Task, so it can't be trained.",
            reason="NOT_A_TASK",
        )
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        text = (
            f"The task {name} doesn't define {' and '.join(missing)}; model() and data() have to be written."
        )
        raise InvalidArgumentError(text, reason="NOT_A_TASK")
    task = construct(found, name, arguments)
    check_defaults(task, name)
    return task


def load_data(task: Task) -> tuple[Samples | Sharded, Samples]:
    """The task's training and test samples, both known to be countable and not empty.

    Raises InvalidArgumentError for anything but two map-style datasets, and what the task raises.
    """
    pair = task.data()
    name = type(task).__name__
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InvalidArgumentError(f"{name}.data() must return two data sets: training and test samples.")
    for kind, split in zip(("training", "test"), pair, strict=True):
        if isinstance(split, Sharded) and kind == "training":
            continue
        if not hasattr(split, "__len__") or not hasattr(split, "__getitem__"):
            what = f"a {type(split).__name__}, which has no length or no items"
            raise InvalidArgumentError(
                f"{name}.data() gave as {kind} samples {what}: a map-style one is needed. "
                "Training data that can only be read in order are a peerloom.worker.sharded.Sharded."
            )
        if not len(split) and not (kind == "test" and task.metric_name == LOSS_METRIC):
            raise InvalidArgumentError(f"{name}.data() gave no {kind} samples; at least one is needed.")
    return pair


def load_batch(
    task: Task, samples: Samples, indices: Tensor, device: torch.device | str = "cpu"
) -> tuple[Nest, Nest]:
    """The task's batch of the samples `indices`, on `device`.

    Raises InvalidArgumentError when inputs and targets aren't of the same samples, and what the task raises.
    """
    pair = task.batch(samples, indices)
    name = f"{type(task).__name__}.batch()"
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidArgumentError.of_field(name, form_of(pair), "a pair: inputs and targets")
    sample_count(pair, name)
    inputs, targets = moved(pair, torch.device(device))
    return inputs, targets


def sample_losses(task: Task, outputs: Nest, targets: Nest) -> Tensor:
    """The task's loss of each sample, [n]; InvalidArgumentError when the task gives another shape."""
    return check_per_sample(task, "loss", task.loss(outputs, targets), targets)


def sample_scores(task: Task, outputs: Nest, targets: Nest) -> Tensor:
    """The task's metric of each sample, [n] float32; InvalidArgumentError when it gives another shape."""
    return check_per_sample(task, "metric", task.metric(outputs, targets), targets).float()
