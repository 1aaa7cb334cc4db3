"""A share walked in pieces gives the gradient and the loss of the whole; DDP sends their sum, once."""

import pytest
import torch
import torch.distributed as dist
from test_broken_step import Line, new_group, trained
from test_followed_group import Peers
from test_weighted_gradients import Lines

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.group.followed import FollowedGroup
from peerloom.worker.group.waits import Waits
from peerloom.worker.step_share import pieces, share_of
from peerloom.worker.sync.distributed_model import distributed, unchanged
from peerloom.worker.training import Training


@pytest.mark.parametrize(
    ("count", "most", "least", "sizes"),
    [
        (7, None, 1, [7]),
        (7, 7, 1, [7]),
        (7, 3, 1, [3, 2, 2]),
        (8, 3, 2, [3, 3, 2]),
        (3, 2, 2, [3]),  # the batch's normalisation takes two at least
        (2, 1, 2, [2]),
        (2, 1, 1, [1, 1]),
    ],
)
def test_pieces_are_few_and_of_about_equal_size(
    count: int, most: int | None, least: int, sizes: list[int]
) -> None:
    cut = pieces(torch.arange(count), most, least)
    assert [len(piece) for piece in cut] == sizes
    assert torch.equal(torch.cat(cut), torch.arange(count))


class InPieces(Lines):
    """The same in pieces of five at most."""

    micro_batch = 5


class Sending:
    """DDP of one of two ranks, whose peer adds nothing; `sent` are the buckets that it hands over."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.process_group = FollowedGroup(Peers(hangs_at=10**6), Waits())
        self.sent: list[torch.Tensor] = []
        self.forward = distributed(model, self, self._send)  # type: ignore[arg-type]  # all that DDP needs

    def _send(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.sent.append(bucket.buffer().clone())
        return unchanged(bucket.buffer())


def gradients(task: Lines, through_ddp: bool) -> list[torch.Tensor]:
    """Losses and gradients of two steps: from the second on DDP's gradients are views of its buckets."""
    spec = JobSpec(epochs=1, batch_size=24, learning_rate=0.1, seed=4)
    training = Training(task, spec, torch.device("cpu"))
    model, found = training.state.model, list[torch.Tensor]()
    ddp = Sending(model) if through_ddp else None
    for step in (0, 1):
        loss = share_of(training, step, [24], 0).walk(
            training, ddp.forward if ddp else model, training.state.updater
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        found += [loss.detach(), *[each.grad.clone() for each in model.parameters() if each.grad is not None]]
        if ddp:
            sent = torch.cat(ddp.sent)
            assert len(sent) == sum(each.numel() for each in model.parameters()), "once a step"
            assert float(sent.sum()) == pytest.approx(float(sum(each.sum() for each in found[-4:])))
            ddp.sent.clear()
        training.state.updater.step()
    return found


def test_the_pieces_add_up_to_the_whole_share_and_are_sent_once() -> None:
    whole = gradients(Lines(), through_ddp=False)
    for through_ddp in (False, True):
        torch.testing.assert_close(gradients(InPieces(), through_ddp), whole, rtol=1e-12, atol=1e-14)


def test_a_job_in_pieces_ends_with_the_parameters_of_one_that_isnt() -> None:
    class Single(Line):
        micro_batch = 1

    whole, cut = trained(Line(), [new_group(1)]), trained(Single(), [new_group(1)])
    torch.testing.assert_close(list(cut.state.model.parameters()), list(whole.state.model.parameters()))
    assert cut.task.batches == 2 * whole.task.batches  # type: ignore[attr-defined]  # a Line
