"""The models in memory: fetched when first asked for, and at most so many bytes of them."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import InvalidArgumentError, ResourceExhaustedError
from peerloom.inference.server.batching import moving_mean, to_drop
from peerloom.inference.server.computing import Computing, ServedModel, ServedPart
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import ArtifactHolder

_log = get_logger()
_MODELS = 16
FetchFile = Callable[[str, Path, Sequence[ArtifactHolder]], Awaitable[object]]


@dataclass(eq=False)
class LoadedPart:
    """A part in the cache. `seconds_per_sample` is a moving mean, 0 before the first measurement."""

    part: ServedPart
    seconds_per_sample: float = 0.0

    def note(self, seconds: float, samples: int) -> None:
        """Adds what a batch took."""
        self.seconds_per_sample = moving_mean(self.seconds_per_sample, seconds / samples)


class ModelCache:
    """Keeps models; `fetch(digest, path, holders)` brings an artifact's bytes into a file of `folder`."""

    def __init__(
        self,
        fetch: FetchFile,
        folder: Path,
        limit_bytes: int,
        computing: Computing,
        clock: Clock,
    ) -> None:
        self._fetch, self._folder = fetch, folder
        self._computing, self._clock = computing, clock
        self.limit_bytes = limit_bytes
        self._models: OrderedDict[str, ServedModel] = OrderedDict()
        self._loaded: OrderedDict[str, LoadedPart] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._loading = asyncio.Lock()

    async def model(self, digest: str, holders: Sequence[ArtifactHolder] = ()) -> tuple[ServedModel, float]:
        """What the model is, and the seconds that fetching it took. Raises what both raise."""
        if digest in self._models:
            self._models.move_to_end(digest)
            return self._models[digest], 0.0
        path, started_s = self._folder / f"{digest}.safetensors", self._clock.monotonic_s()
        await self._fetch(digest, path, holders)
        fetch_s = self._clock.monotonic_s() - started_s
        self._models[digest] = await self._computing.read(path, digest)
        while len(self._models) > _MODELS:
            _, old = self._models.popitem(last=False)
            with suppress(OSError):  # a file that stays costs disk only
                old.path.unlink()
        return self._models[digest], fetch_s

    async def load(self, digest: str, first: int = 0, end: int = 0) -> tuple[LoadedPart, float, float]:
        """The part, and the seconds that fetching and building took (0: it was here).

        Raises ResourceExhaustedError, saying how much is missing, when it doesn't fit beside what is in use.
        """
        async with self._loading:
            model, fetch_s = await self.model(digest)
            end = _checked_end(first, end, len(model.layer_bytes))
            key = key_of(digest, first, end)
            if key in self._loaded:
                self._loaded.move_to_end(key)
                return self._loaded[key], fetch_s, 0.0
            self._make_room(sum(model.layer_bytes[first:end]))
            started_s = self._clock.monotonic_s()
            part = await model.build(first, end)
            self._loaded[key] = LoadedPart(part)
            build_s = self._clock.monotonic_s() - started_s
            _log.info("model_loaded", digest=digest, layers=f"{first}:{end}", bytes=part.memory_bytes)
            return self._loaded[key], fetch_s, build_s

    def hold(self, part: ServedPart) -> None:
        """Keeps a part from being dropped until `release` was called as often."""
        self._users[key_of(part.digest, part.first, part.end)] += 1

    def release(self, part: ServedPart) -> None:
        """Takes one `hold` back."""
        key = key_of(part.digest, part.first, part.end)
        self._users[key] -= 1
        if self._users[key] <= 0:
            del self._users[key]

    @property
    def loaded(self) -> list[LoadedPart]:
        """All parts, least recently used first."""
        return list(self._loaded.values())

    @property
    def used_bytes(self) -> int:
        """Memory that the parts' parameters take."""
        return sum(loaded.part.memory_bytes for loaded in self._loaded.values())

    def _make_room(self, needed_bytes: int) -> None:
        sizes = [(key, loaded.part.memory_bytes) for key, loaded in self._loaded.items()]
        for key in to_drop(sizes, set(self._users), needed_bytes, self.limit_bytes):
            _log.info("model_dropped_for_room", model=key)
            del self._loaded[key]
        missing_bytes = self.used_bytes + needed_bytes - self.limit_bytes
        if missing_bytes > 0:
            raise ResourceExhaustedError(
                f"The layers need {needed_bytes:,} bytes, {missing_bytes:,} more than are left of the "
                f"{self.limit_bytes:,} that this node lends to models. Split the model over more nodes, or "
                "raise inference_memory_bytes.",
                reason="MODEL_TOO_LARGE",
                metadata={"needed_bytes": str(needed_bytes), "missing_bytes": str(missing_bytes)},
            )


def key_of(digest: str, first: int, end: int) -> str:
    """Names a part of a model."""
    return f"{digest}:{first}:{end}"


def _checked_end(first: int, end: int, count: int) -> int:
    """One past the last layer: `end`, or for 0 the model's. Raises InvalidArgumentError for an empty part."""
    end = end or count
    if not 0 <= first < end <= count:
        limit = f"a range of layers within 0 to {count}, the model's number"
        raise InvalidArgumentError.of_field("first_layer, end_layer", f"{first}, {end}", limit)
    return end
