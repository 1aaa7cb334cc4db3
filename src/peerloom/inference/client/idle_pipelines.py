"""Pipelines that wait, open, for the next inputs: opening one takes as long as some of an answer's hops."""

import asyncio
from collections.abc import Sequence

from peerloom.inference.client.pipeline import Pipeline
from peerloom.inference.client.stage import Placement

IDLE_S = 2.0  # meanwhile the stages' nodes keep the layers in memory
KEPT = 4


class IdlePipelines:
    """At most 4 pipelines, each for at most 2 s; they have given all their outputs."""

    def __init__(self) -> None:
        self._pipelines: dict[Pipeline, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, digest: str, placements: Sequence[Placement]) -> Pipeline | None:
        """One with the model's stages in just these places, the last that was in use; None without any."""
        for pipeline in reversed(list(self._pipelines)):
            if not pipeline.is_whole:
                self._drop(pipeline)
            elif pipeline.digest == digest and pipeline.placements == tuple(placements):
                self._pipelines.pop(pipeline).cancel()
                return pipeline
        return None

    def keep(self, pipeline: Pipeline) -> None:
        """Lets a pipeline wait; one that lost a stage, or has more to give, is closed."""
        if not pipeline.is_whole:
            self.end(pipeline)
            return
        loop = asyncio.get_running_loop()
        self._pipelines[pipeline] = loop.call_later(IDLE_S, self._drop, pipeline)
        for oldest in list(self._pipelines)[:-KEPT]:
            self._drop(oldest)

    def end(self, pipeline: Pipeline) -> None:
        """Closes a pipeline while the caller goes on: the stages' goodbyes take a round trip."""
        closing = asyncio.create_task(pipeline.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes all, and waits for those that are being closed."""
        for pipeline in list(self._pipelines):
            self._drop(pipeline)
        await asyncio.gather(*self._closing)

    def _drop(self, pipeline: Pipeline) -> None:
        self._pipelines.pop(pipeline).cancel()
        self.end(pipeline)
