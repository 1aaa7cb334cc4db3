"""A wait for a collective ends with the collective or with the break, whichever comes first."""

from typing import cast

import torch
import torch.distributed as dist

from peerloom.worker.group.waits import Waits


class Collective:
    """Stands for a collective of the library, which ends when the test says so."""

    def __init__(self) -> None:
        self.future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self.future


def started(waits: Waits) -> tuple[Collective, torch.futures.Future[torch.Tensor | str]]:
    collective = Collective()
    return collective, waits.follow(cast(dist.Work, collective))


def test_a_collective_that_ends_gives_its_tensor() -> None:
    collective, future = started(Waits())
    collective.future.set_result([torch.tensor([3.0])])
    assert torch.equal(cast(torch.Tensor, future.wait()), torch.tensor([3.0]))


def test_a_break_ends_every_wait_though_the_library_goes_on() -> None:
    waits = Waits()
    hanging, first = started(waits)
    _, second = started(waits)
    waits.break_all("a peer fell silent")
    assert (first.wait(), second.wait()) == ("a peer fell silent", "a peer fell silent")
    hanging.future.set_result([torch.zeros(1)])
    assert first.wait() == "a peer fell silent"


def test_a_wait_that_begins_after_the_break_ends_too() -> None:
    waits = Waits()
    waits.break_all("a peer fell silent")
    waits.break_all("and another reason")
    _, future = started(waits)
    assert future.wait() == "a peer fell silent"


def test_what_the_library_still_does_is_known() -> None:
    """A group may be freed without waiting only once nothing of it is under way, broken or not."""
    waits = Waits()
    assert waits.quiet.is_set()
    first, _ = started(waits)
    second, _ = started(waits)
    waits.break_all("a peer fell silent")
    first.future.set_result([torch.zeros(1)])
    assert not waits.quiet.is_set()
    second.future.set_result([torch.zeros(1)])
    assert waits.quiet.is_set()


def test_the_librarys_own_error_is_told_in_its_words() -> None:
    collective, future = started(Waits())
    error = RuntimeError("gloo: Connection closed by peer")
    collective.future.set_exception(error)  # type: ignore[arg-type]  # torch's mistake
    assert future.wait() == "gloo: Connection closed by peer"
