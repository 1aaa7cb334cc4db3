"""What must not be dropped: artifacts that users pinned, and those that somebody uses now."""

from collections.abc import Callable
from pathlib import Path

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import FailedPreconditionError, ResourceExhaustedError

PIN_SHARE = 0.8


class Retention:
    """Pins last over restarts, as files DIGEST.pin; holds end with the process, like what they are for.

    Not safe for threads by itself: the store's lock is held around each call.
    """

    def __init__(self, folder: Path, pin_limit_bytes: int, size_of: Callable[[str], int]) -> None:
        self._folder, self._pin_limit_bytes, self._size_of = folder, pin_limit_bytes, size_of
        self._holders: dict[str, list[str]] = {}
        self.pinned: set[str] = set()

    def load(self, known: set[str]) -> None:
        """Finds the pins of `known` artifacts, and removes the others'."""
        for path in self._folder.glob("*.pin"):
            if path.stem in known:
                self.pinned.add(path.stem)
            else:
                path.unlink()

    def keeps(self, digest: str) -> bool:
        """Whether it must stay."""
        return digest in self.pinned or digest in self._holders

    def users(self, digest: str) -> list[str]:
        """Who holds it, each once, ordered."""
        return sorted(set(self._holders.get(digest, ())))

    def holders(self) -> set[str]:
        """All who hold anything."""
        return {holder for holders in self._holders.values() for holder in holders}

    def kept(self) -> set[str]:
        """All that must stay."""
        return self.pinned | self._holders.keys()

    def pin(self, digest: str) -> None:
        """Raises ResourceExhaustedError when the pinned ones would leave too little for all others."""
        if digest in self.pinned:
            return
        pinned_bytes = sum(self._size_of(one) for one in self.pinned)
        if pinned_bytes + self._size_of(digest) > self._pin_limit_bytes:
            raise ResourceExhaustedError(
                f"The artifact {digest} has {self._size_of(digest):,} bytes, {pinned_bytes:,} are pinned, "
                f"and pins may take {self._pin_limit_bytes:,} ({PIN_SHARE:.0%} of the artifact limit). "
                "Unpin another, or raise artifact_limit_bytes.",
                reason="PIN_LIMIT",
            )
        with disk_errors(self._folder):
            (self._folder / f"{digest}.pin").touch()
        self.pinned.add(digest)

    def unpin(self, digest: str) -> None:
        """Does nothing where there is no pin."""
        self.pinned.discard(digest)
        with disk_errors(self._folder):
            (self._folder / f"{digest}.pin").unlink(missing_ok=True)

    def forget(self, digest: str) -> None:
        """It is gone, damaged or removed."""
        self.pinned.discard(digest)

    def hold(self, digest: str, holder: str) -> None:
        """Notes that `holder` uses it, until `release` was called as often."""
        self._holders.setdefault(digest, []).append(holder)

    def release(self, digest: str, holder: str) -> None:
        """Takes one `hold` back."""
        holders = self._holders.get(digest, [])
        if holder in holders:
            holders.remove(holder)
        if not holders:
            self._holders.pop(digest, None)

    def release_all(self, holder: str) -> None:
        """Takes all of a holder's holds back."""
        for digest in list(self._holders):
            left = [one for one in self._holders[digest] if one != holder]
            if left:
                self._holders[digest] = left
            else:
                del self._holders[digest]

    def check_removable(self, digest: str) -> None:
        """Raises FailedPreconditionError for what must stay, saying why."""
        if digest in self.pinned:
            raise FailedPreconditionError(
                f"The artifact {digest} is pinned here. Unpin it first: "
                f"peerloom artifacts unpin {digest[:12]}",
                reason="ARTIFACT_PINNED",
            )
        if users := self.users(digest):
            raise FailedPreconditionError(
                f"The artifact {digest} is in use here by {', '.join(users)}. Wait for the end, or cancel "
                "that.",
                reason="ARTIFACT_IN_USE",
            )
