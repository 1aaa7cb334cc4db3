"""What a worker keeps of federated rounds over the generations of a job: its client, and the versions."""

from peerloom.kit.federated_rounds import FederatedRounds
from peerloom.worker.federated.client_rows import IDLE, NOBODY, ClientRow
from peerloom.worker.federated.client_work import ClientWork
from peerloom.worker.federated.shards import Shard, split_of
from peerloom.worker.federated.versions import KeptVersions
from peerloom.worker.schedule import shuffled
from peerloom.worker.sharded import Sharded, StreamedSamples
from peerloom.worker.training import Training


class Federation:
    """One worker's client: its number, its shard, and its work.

    `rounds` as the job's `sync` says; `sharded` are the task's data where they are read in order. `kept` is a
    part of the job's state, and `generation` the newest in which the workers have agreed on their numbers.
    """

    def __init__(self, training: Training, rounds: FederatedRounds, sharded: Sharded | None) -> None:
        self.rounds = rounds
        self.kept = KeptVersions()
        self.generation = 0
        self.work: ClientWork | None = None
        self.shards = rounds.shards if sharded is None else len(sharded.shard_samples)
        self._training = training
        self._sharded = sharded
        self._number = NOBODY
        self._shard: Shard | None = None
        self._own = None if sharded is None else sharded.own_shard
        self._split = (
            [] if sharded is not None else split_of(training.task, training.train, rounds, training.seed)
        )

    @property
    def claim(self) -> int:
        """The number that this worker's client has, or has to have; NOBODY: any."""
        return self._own if self._own is not None else self._number

    def take(self, number: int) -> None:
        """Its client has this number now; another than its node has data for is as good as none."""
        if self._own is not None and number != self._own:
            number = NOBODY
        if number != self._number:
            self.drop()
            self._number, self._shard = number, None if number == NOBODY else self._shard_of(number)

    def begin(self, version: int) -> None:
        """It trains for the round of this version, which its model has."""
        assert self._shard is not None, "who has no data isn't drawn"
        self.work = ClientWork(self._training, self.rounds, self._number, self._shard, version)

    def drop(self) -> None:
        """Its work has counted, or never will."""
        self.work = None

    def row(self) -> ClientRow:
        """What the others hear of it; the model has the newest parameters if its work is done."""
        work = self.work
        if work is None:
            return ClientRow(self._number, IDLE)
        if not work.is_done:
            return ClientRow(self._number, work.version)
        likeness = work.likeness() if work.version < self.kept.now.newest else 1.0
        return ClientRow(self._number, work.version, True, work.samples, work.flaw(), likeness, work.loss)

    def _shard_of(self, number: int) -> Shard:
        training = self._training
        if self._sharded is None:
            own, seed = self._split[number], training.seed
            return Shard(len(own), lambda count: own[shuffled(len(own), seed, count)])
        streamed = StreamedSamples(self._sharded.only(number), training.schedule.batch_size)
        training.train = streamed
        return Shard(len(streamed), streamed.order)
