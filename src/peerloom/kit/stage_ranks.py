"""Which of a pipeline's workers compute what, where a stage may have several: pure, of the stages' widths.

The workers of a stage have consecutive ranks, those of the first stage the first ones. They take turns at the
micro-batches of a batch: worker j of w, from 0, computes each micro-batch m with m mod w = j.

Where layers are cut in pieces a stage is what a worker holds: neighbouring stages, a team, have the pieces of
the same layers, and compute the same micro-batches together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from peerloom.kit.plan_model.pipeline_order import PipelinePass, held_micro_batches, passes_of


@dataclass(frozen=True)
class StageRanks:
    """`widths` are the numbers of workers of the stages, from the first one; stages and ranks are from 0.

    Of `pieces` above 1 there are as many stages in each team, of one worker each.
    """

    widths: tuple[int, ...]
    pieces: int = 1

    @property
    def stages(self) -> int:
        """Parts of the model."""
        return len(self.widths)

    @property
    def workers(self) -> int:
        """Of all stages."""
        return sum(self.widths)

    @property
    def is_wide(self) -> bool:
        """Whether some stage has several workers."""
        return max(self.widths) > 1

    def of_stage(self, stage: int) -> range:
        """The ranks of a stage's workers, in the order of their turns."""
        first = sum(self.widths[:stage])
        return range(first, first + self.widths[stage])

    def stage_of(self, rank: int) -> int:
        """The stage that a rank is a worker of."""
        return next(stage for stage, end in enumerate(accumulate(self.widths)) if rank < end)

    def by_rank(self) -> tuple[int, ...]:
        """The stage of each rank."""
        return tuple(stage for stage, width in enumerate(self.widths) for _ in range(width))

    def piece_of(self, stage: int) -> int:
        """Which piece of its layers a stage has, from 0."""
        return stage % self.pieces

    def team_of(self, stage: int) -> range:
        """The stages that have pieces of the same layers; their workers have the same numbers as ranks."""
        first = stage - self.piece_of(stage)
        return range(first, first + self.pieces)

    def is_first(self, stage: int) -> bool:
        """Whether it takes the inputs."""
        return stage < self.pieces

    def is_last(self, stage: int) -> bool:
        """Whether its outputs are the model's."""
        return stage >= self.stages - self.pieces

    def turn_of(self, rank: int) -> int:
        """Which of its stage's workers a rank is."""
        return rank - self.of_stage(self.stage_of(rank))[0]

    def rank_of(self, stage: int, micro_batch: int) -> int:
        """Who computes a micro-batch in a stage."""
        return self.of_stage(stage)[micro_batch % self.widths[stage]]

    def rank_before(self, stage: int, micro_batch: int) -> int:
        """Whose outputs of a micro-batch a stage takes, which isn't the first."""
        return self.rank_of(stage - self.pieces, micro_batch)

    def rank_after(self, stage: int, micro_batch: int) -> int:
        """Who takes the outputs that a stage, which isn't the last, has of a micro-batch."""
        return self.rank_of(stage + self.pieces, micro_batch)

    def has_turn(self, rank: int, micro_batch: int) -> bool:
        """Whether a rank computes a micro-batch."""
        return self.rank_of(self.stage_of(rank), micro_batch) == rank

    def turns_of(self, rank: int, micro_batches: int) -> int:
        """How many of a batch's micro-batches a rank computes."""
        width = self.widths[self.stage_of(rank)]
        return len(range(self.turn_of(rank), micro_batches, width))

    def held_by(self, order: str, rank: int, micro_batches: int) -> int:
        """Of how many micro-batches at most a rank holds activations at once. Raises as `passes_of`."""
        stage = self.stage_of(rank)
        width, turn = self.widths[stage], self.turn_of(rank)
        ahead = held_micro_batches(order, *self._place_in_order(stage), micro_batches)
        # The stage goes over the batch with a window of as many micro-batches as it is ahead.
        firsts = range(min(width, micro_batches - ahead + 1))
        return max(len(range(first + (turn - first) % width, first + ahead, width)) for first in firsts)

    def gives_part(self, rank: int, writer: int) -> bool:
        """Whether a rank gives its stage's part of a file: the `writer` itself, or else its stage's first."""
        ranks = self.of_stage(self.stage_of(rank))
        return rank == (writer if writer in ranks else ranks[0])

    def passes_of(self, order: str, rank: int, micro_batches: int) -> Iterator[PipelinePass]:
        """All passes of a rank, one after the other: those of its stage over the micro-batches of its turns.

        In all orders but GPipe a stage goes ahead as if each worker from itself to the end were a stage, so
        that each has one to compute. Raises as `pipeline_order.passes_of`.
        """
        stage = self.stage_of(rank)
        for _, micro_batch, kind in passes_of(order, *self._place_in_order(stage), micro_batches):
            if self.has_turn(rank, micro_batch):
                yield PipelinePass(stage, micro_batch, kind)

    def _place_in_order(self, stage: int) -> tuple[int, int]:
        """Which of how many stages it would be if each worker, or each team, were one."""
        return self.of_stage(stage)[0] // self.pieces, self.workers // self.pieces


def shares_of_stages(worker_shares: Sequence[int], ranks: StageRanks) -> list[int]:
    """How much of the model each stage should have, of what its workers should, by rank; empty: by widths.

    As a stage's workers have as many turns each, it is as fast as its slowest one times their number.
    """
    if len(set(worker_shares)) < 2:
        return []
    members = [[worker_shares[rank] for rank in ranks.of_stage(stage)] for stage in range(ranks.stages)]
    return [len(each) * min(each) for each in members]
