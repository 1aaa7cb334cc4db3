"""Text, token by token: each stage keeps the keys and values of what it has seen."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.client.types.inference import GeneratedToken, Mode
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from peerloom.inference.client.router import InferenceRouter
from peerloom.inference.client.split import layer_costs, stage_nodes
from peerloom.inference.cut import cut
from peerloom.kit.checks import check_range
from peerloom.kit.raw_input import RawInput, raw_input_in
from peerloom.kit.raw_values import decode, encode
from peerloom.v1.inference_pb2 import ModelDescription

Array = npt.NDArray[Any]
TOKEN_LIMIT_S = 60.0
USUAL_STAGES = 3  # each costs every token a hop


async def generate(
    router: InferenceRouter,
    model: str,
    prompt: str | bytes,
    tokens: int,
    temperature: float,
    seed: int,
    mode: Mode,
    stages: int,
) -> AsyncGenerator[GeneratedToken, None]:
    """The tokens that follow the prompt; see AsyncClient.generate."""
    check_range("tokens", tokens, 1, 1_000_000)
    check_range("temperature", temperature, 0, 100)
    digest = await router.digest(model)
    sample = sampler(temperature, seed)
    if mode == "local":
        async for token in _local(router, digest, prompt, tokens, sample):
            yield token
        return
    description = await router.description(digest)
    if not description.incremental:
        raise _not_text(description.digest)
    raw = _language(raw_input_in(description), description.context)
    fed = _fed(prompt, raw)
    if mode == "auto":
        stages = stages or await _fewest_stages(router, description)
    elif mode == "remote":
        stages = 1
    elif mode == "split":
        stages = stages or await _usual_stages(router, description)
    pipeline, _ = await router.split.place(description, stages, incremental=True)
    try:
        pipeline.open()
        replaced, length = 0, fed.shape[1]
        for position in range(length, min(length + tokens, description.context)):
            started_s = router.clock.monotonic_s()
            pipeline.feed(fed)
            logits, _ = await pipeline.next(TOKEN_LIMIT_S)
            chosen = sample(logits)
            seconds = router.clock.monotonic_s() - started_s
            new = pipeline.replaced - replaced
            yield GeneratedToken(chosen, decode(chosen, raw), position, seconds, pipeline.nodes, new)
            replaced, fed = pipeline.replaced, np.array([[chosen]], dtype=np.int64)
    finally:
        await pipeline.close()


def sampler(temperature: float, seed: int) -> Callable[[Array], int]:
    """Chooses the next token of logits [1, tokens]: the most probable at 0, else by chance from the seed."""
    chance = np.random.default_rng(seed)

    def sample(logits: Array) -> int:
        row = logits[0].astype(np.float64)
        if temperature == 0:
            return int(row.argmax())
        exponentials = np.exp((row - row.max()) / temperature)
        return int(chance.choice(len(row), p=exponentials / exponentials.sum()))

    return sample


async def _local(
    router: InferenceRouter, digest: str, prompt: str | bytes, tokens: int, sample: Callable[[Array], int]
) -> AsyncGenerator[GeneratedToken, None]:
    model = await router.local.model(digest)
    if not model.context:
        raise _not_text(digest)
    raw = _language(model.raw_input, model.context)
    sequence, fed = model.begin(), _fed(prompt, raw)
    length = fed.shape[1]
    for position in range(length, min(length + tokens, model.context)):
        started_s = router.clock.monotonic_s()
        chosen = sample(await sequence.step(fed))
        yield GeneratedToken(chosen, decode(chosen, raw), position, router.clock.monotonic_s() - started_s)
        fed = np.array([[chosen]], dtype=np.int64)


async def _fewest_stages(router: InferenceRouter, description: ModelDescription) -> int:
    """A token waits for each hop, so the fewest stages that fit are the fastest."""
    replicas = await router.replicas.known(description.digest)
    for count in range(1, min(len(description.layers), len(replicas)) + 1):
        try:
            cut(layer_costs(description), stage_nodes(replicas), count)
            return count
        except ResourceExhaustedError:
            continue
    return 0  # placing it will say how much is missing


async def _usual_stages(router: InferenceRouter, description: ModelDescription) -> int:
    """Three, or as many as there are layers and nodes for."""
    replicas = await router.replicas.known(description.digest)
    return max(1, min(USUAL_STAGES, len(description.layers), len(replicas)))


def _language(declared: RawInput | None, context: int) -> RawInput:
    """What the tokens of a sequence mean: bytes, unless the model's task declared a vocabulary."""
    return declared if declared is not None and declared.vocabulary else RawInput.of_text(context)


def _fed(prompt: str | bytes, raw: RawInput) -> Array:
    """The prompt's tokens [1, t]. Raises InvalidArgumentError for one that leaves no place for more."""
    tokens, context = encode([prompt], raw).astype(np.int64), raw.shape[0]
    if not 1 <= tokens.shape[1] < context:
        limit = f"1 to {context - 1} long (the model's context is {context})"
        raise InvalidArgumentError.of_field("prompt", f"{tokens.shape[1]} tokens", limit)
    return tokens


def _not_text(digest: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"The model {digest[:12]} doesn't continue sequences; use infer. One that does: peerloom train text",
        reason="NOT_INCREMENTAL",
    )
