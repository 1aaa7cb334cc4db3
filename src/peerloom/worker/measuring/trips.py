"""Messages of probes there and back over the mesh: who asks, who answers at once, and who waits for it.

And what all tell each other.
"""

from collections.abc import Mapping, Sequence
from threading import Semaphore

import torch

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.frames import Tag
from peerloom.worker.mesh.mesh import Mesh

BEHIND = -1  # whatever the training sends is more urgent
LONGEST_WAIT_S = 60.0  # who waits in a mesh that was left is let go in the end


def begin_asking(mesh: Mesh, peer: int, number: int, there: int, back: int) -> TensorFuture:
    """Sends so many bytes, and awaits so many `back`; `number` is the exchange's, on both ranks."""
    asked, came = (torch.zeros(size, dtype=torch.uint8) for size in (there, back))
    return mesh.begin(number, {peer: asked}, {1: {peer: came}}, urgency=BEHIND)


def begin_answering(mesh: Mesh, peer: int, number: int, there: int, back: int) -> TensorFuture:
    """Sends so many bytes `back` as soon as `peer` has asked with so many."""
    asked, answer = (torch.zeros(size, dtype=torch.uint8) for size in (there, back))

    def send() -> None:
        mesh.send(Tag(number, 1), {peer: answer}, BEHIND)

    return mesh.begin(number, {}, {0: {peer: asked}}, [send], BEHIND)


def told_by_all(mesh: Mesh, number: int, told: Mapping[int, bytes], missing: str) -> dict[int, bytes]:
    """What each of these ranks tells in the exchange of this number, and is `told`: all as many bytes.

    Blocks. Raises RuntimeError as `await_all`.
    """
    outgoing = {peer: torch.frombuffer(bytearray(one), dtype=torch.uint8) for peer, one in told.items()}
    incoming = {peer: torch.empty_like(one) for peer, one in outgoing.items()}
    await_all([mesh.begin(number, outgoing, {0: incoming}, urgency=BEHIND)], missing)
    return {peer: bytes(one.tolist()) for peer, one in incoming.items()}


def await_all(futures: Sequence[TensorFuture], missing: str) -> None:
    """Blocks until all are complete.

    Raises RuntimeError with the reason when one fails, or with `missing` after LONGEST_WAIT_S.
    """
    results: list[object] = []
    ended = Semaphore(0)

    def end(future: TensorFuture) -> None:
        results.append(future.value())
        ended.release()

    for future in futures:
        future.add_done_callback(end)
    if not all(ended.acquire(timeout=LONGEST_WAIT_S) for _ in futures):
        raise RuntimeError(missing)
    if failures := [result for result in results if isinstance(result, str)]:
        raise RuntimeError(failures[0])
