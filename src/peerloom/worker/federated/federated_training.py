"""What a worker keeps over the generations of a federated job."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from peerloom.errors import InvalidArgumentError
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.federated.federation import Federation
from peerloom.worker.schedule import Schedule
from peerloom.worker.sharded import Sharded
from peerloom.worker.task import Samples, Task
from peerloom.worker.training import Training


class FederatedTraining(Training):
    """A training in federated rounds: an epoch is a round, and each worker reads one shard of the data.

    Raises InvalidArgumentError for batch normalisation, and for data that can't be split so.
    """

    def __init__(self, task: Task, spec: JobSpec, device: torch.device) -> None:
        self._sharded: Sharded | None = None
        super().__init__(task, spec, device)
        assert self.local_steps is not None, "federated rounds are rounds of local steps"
        assert self.sync.federated is not None, "the job is federated"
        _check_buffers(task, self.state.model)
        self.federation = Federation(self, self.sync.federated, self._sharded)
        self.state.registered["federated"] = self.federation.kept

    def readable(self, train: Samples | Sharded, batch_size: int) -> Samples:
        """Of data that are read in order, only one shard: which, the workers agree on later."""
        if not isinstance(train, Sharded):
            return train
        self._sharded = train
        return super().readable(train.only(train.own_shard or 0), batch_size)

    def scheduled(self, samples: int, spec: JobSpec) -> Schedule:
        """An epoch is one step."""
        return Schedule(samples, spec.batch_size, spec.epochs, spec.seed, is_epoch_a_step=True)

    def steps_at_once(self, step: int) -> range:
        """Each is a round."""
        return range(step, step + 1)

    def positions(self, seed: int) -> int:
        """Samples of all shards."""
        return len(self._sharded if self._sharded is not None else self.train)


def _check_buffers(task: Task, model: torch.nn.Module) -> None:
    if any(isinstance(module, _BatchNorm) and module.track_running_stats for module in model.modules()):
        raise InvalidArgumentError(
            f"The model of {type(task).__name__} has batch normalisation, whose statistics are of one "
            "client's samples, and no mean of clients' is that of all samples. Take GroupNorm or LayerNorm "
            "for federated rounds.",
            reason="BATCH_NORMALISATION_FEDERATED",
        )
