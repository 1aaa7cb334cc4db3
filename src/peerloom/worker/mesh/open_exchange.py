"""What one exchange of a mesh still waits for: messages both ways, and its own next phase."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.frames import Tag, check_length


def content_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the processor, which it shares."""
    return tensor.view(-1).view(torch.uint8).numpy().data


class OpenExchange:
    """The state of an exchange, which its mesh changes under a lock."""

    def __init__(
        self,
        sequence: int,
        outgoing: Iterable[int],
        incoming: Mapping[int, Mapping[int, torch.Tensor]],
        thens: Sequence[Callable[[], None]],
        deadline_s: float,
    ) -> None:
        self.future: TensorFuture = torch.futures.Future()
        self.sequence, self.deadline_s = sequence, deadline_s
        self._unsent = Counter(list(outgoing))  # messages by rank
        self._targets = {
            (rank, Tag(sequence, phase)): content_of(tensor)
            for phase, by_rank in incoming.items()
            for rank, tensor in by_rank.items()
        }
        self._awaited = set(self._targets)
        self._thens = deque(thens)
        self._phase = 0  # whose messages the next of them waits for
        self._goes_on = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to come, to be done or to be sent."""
        return not (self._thens or self._goes_on or self._awaited or self._unsent)

    def needed(self) -> list[int]:
        """The ranks without which it can't end."""
        return sorted({rank for rank, _ in self._awaited} | set(self._unsent))

    def needs(self, rank: int) -> bool:
        """Whether it can't end without this rank."""
        return rank in self.needed()

    def awaited(self) -> list[tuple[int, Tag]]:
        """What is still to come."""
        return list(self._awaited)

    def target(self, rank: int, tag: Tag, length_bytes: int) -> memoryview:
        """Where a message goes. Raises ValueError for one that isn't awaited, or has another length."""
        if (rank, tag) not in self._awaited:
            raise ValueError(
                f"sent a message that nobody awaits, in phase {tag.phase} of exchange {tag.sequence}"
            )
        check_length(tag, length_bytes, len(self._targets[rank, tag]))
        return self._targets[rank, tag]

    def fill(self, rank: int, tag: Tag, content: bytearray) -> None:
        """A message has come elsewhere. Raises ValueError as `target` does."""
        self.target(rank, tag, len(content))[:] = content
        self.note_came(rank, tag)

    def note_came(self, rank: int, tag: Tag) -> None:
        """A message is complete."""
        self._awaited.discard((rank, tag))

    def note_sending(self, ranks: Iterable[int]) -> None:
        """One more message for each of them is on its way."""
        self._unsent.update(list(ranks))

    def note_sent(self, rank: int) -> None:
        """The kernel has one of the messages."""
        self._unsent -= Counter([rank])

    def take_then(self, done: Callable[[], None] | None) -> Callable[[], None] | None:
        """What has to be done now that all phases until now have come, one at a time; `done`: what ended."""
        if done is not None:
            self._goes_on = False
            self._phase += 1
        is_missing = any(tag.phase <= self._phase for _, tag in self._awaited)
        if not self._thens or self._goes_on or is_missing:
            return None
        self._goes_on = True
        return self._thens.popleft()
