"""Fetching an artifact by its digest, from several peers at once.

fetcher = Fetcher(holders_at(registry))
fetched = await fetcher.fetch(digest, Path("model.safetensors"))
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from peerloom.kit.checks import check_digest
from peerloom.kit.exchange.chunks import Surroundings
from peerloom.kit.exchange.gathering import Gathering
from peerloom.kit.exchange.holders import FindHolders
from peerloom.kit.exchange.outcomes import Fetched, Gave, Lied, Options
from peerloom.kit.exchange.partial import Partial
from peerloom.kit.exchange.sources import Channels
from peerloom.v1.artifact_pb2 import ArtifactHolder, Manifest


def _ignore(_: object) -> None:
    pass


class Fetcher:
    """Fetches artifacts; belongs to one event loop. Use it as an async context manager, or `close` it.

    `find_holders` says who holds a digest, `report` hears of each peer that gave or lied. With `tls_ca` all
    lines are TLS, else bulk lines are plain TCP.
    """

    def __init__(
        self,
        find_holders: FindHolders,
        *,
        tls_ca: str = "",
        report: Callable[[Gave | Lied], object] = _ignore,
        options: Options = Options(),  # noqa: B008  # frozen
    ) -> None:
        self._channels = Channels(tls_ca, options.line_limit + 4)
        seed = random.getrandbits(32)
        self._around = Surroundings(find_holders, self._channels, report, options, seed)

    async def fetch(
        self,
        digest: str,
        destination: Path,
        *,
        holders: Sequence[ArtifactHolder] = (),
        partial_path: Path | None = None,
        on_manifest: Callable[[Manifest], None] = _ignore,
        on_begin: Callable[[Partial], None] = _ignore,
        on_chunk: Callable[[int, int, int], None] = lambda received, size, peers: None,
        report: Callable[[Gave | Lied], object] | None = None,
    ) -> Fetched:
        """Fetches an artifact into the file `destination`, which appears whole and verified or not at all.

        `holders` are asked besides those that `find_holders` names. What has come so far lies at
        `partial_path` (by default a hidden file beside `destination`), also after a failure: the next attempt
        goes on from there. `on_manifest` is told in a thread what is about to come, and may refuse by an
        error; `on_begin` is given the partial file once there is one; `on_chunk` is told the bytes that are
        here, those in all, and the number of peers; `report` hears of the peers instead of the fetcher's own.

        Raises NotFoundError when nobody holds it, DataLossError when all who do sent wrong bytes,
        UnavailableError when they can't be reached, ResourceExhaustedError when the disk is full,
        FailedPreconditionError while another process fetches it to the same place.
        """
        check_digest("digest", digest)
        beside = destination.with_name(f".{destination.name}.{digest[:12]}.part")
        around = self._around if report is None else replace(self._around, report=report)
        gathering = Gathering(
            around,
            digest,
            destination,
            partial_path or beside,
            holders,
            on_manifest,
            on_begin,
            on_chunk,
        )
        return await gathering.run()

    async def close(self) -> None:
        """Closes all channels."""
        await self._channels.close()

    async def __aenter__(self) -> "Fetcher":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
