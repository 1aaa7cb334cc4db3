"""A model is asked through the page: numbers, a text, a drawing or a file in; probable classes out."""

import asyncio
import base64
import binascii
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from peerloom.client.async_client import AsyncClient
from peerloom.client.types import Model, RawInput
from peerloom.dashboard.posted import posted_route, text_field
from peerloom.errors import InvalidArgumentError, ResourceExhaustedError

if TYPE_CHECKING:
    from peerloom.client.types.inference import Inference

AT_ONCE = 4  # questions from all browsers together: nodes have other work
SHOWN = 20  # answers, and classes of each
FILE_KINDS = (".npy", ".json", ".csv", ".png", ".txt")


def questions_route(client: AsyncClient) -> Route:
    """POST /ask {"model", and "text" or "file_name" with "file" in base64}: answers as `shown` says."""
    under_way = 0

    async def ask(posted: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal under_way
        if under_way >= AT_ONCE:
            raise ResourceExhaustedError(
                f"{AT_ONCE} questions are under way through this dashboard: ask again in a moment."
            )
        under_way += 1
        try:
            return await _ask(client, posted)
        finally:
            under_way -= 1

    return posted_route("/ask", ask)


async def _ask(client: AsyncClient, posted: Mapping[str, Any]) -> dict[str, Any]:
    name = text_field(posted, "model")
    model = await client.model(name)
    file_name = text_field(posted, "file_name")
    if not file_name:
        return shown(await _infer(client, model, values_of(text_field(posted, "text"), model.raw_input)))
    with TemporaryDirectory(prefix="peerloom-") as folder:
        file = Path(folder) / f"question{_kind(file_name)}"
        content = _decoded(text_field(posted, "file"))
        await asyncio.to_thread(file.write_bytes, content)
        try:
            return shown(await _infer(client, model, file))
        except InvalidArgumentError as error:  # the name of ours says nothing to who asked
            raise InvalidArgumentError(error.message.replace(str(file), file_name)) from error


async def _infer(client: AsyncClient, model: Model, inputs: Any) -> "Inference":
    """One node answers, or several where the model fits none; never this process, which holds no models."""
    try:
        return await client.infer(model.digest, inputs, "remote")
    except ResourceExhaustedError:
        return await client.infer(model.digest, inputs, "split")


def values_of(text: str, raw: RawInput | None) -> Any:
    """What was written into the box as inputs: JSON as it is, else an input's numbers in each line.

    Where the model takes text, it is the text itself. Raises InvalidArgumentError for no or wrong numbers.
    """
    if raw is not None and raw.vocabulary:
        return text
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"That isn't JSON: {error}") from error
    rows = [_numbers(line) for line in text.splitlines() if line.strip()]
    if not rows:
        raise InvalidArgumentError("Write an input's numbers, draw one, or choose a file.")
    if raw is None:
        return rows
    wanted = math.prod(raw.shape)
    for number, row in enumerate(rows, start=1):
        if len(row) != wanted:
            limit = f"{wanted}, for an input of {' x '.join(map(str, raw.shape))}"
            raise InvalidArgumentError.of_field(f"how many numbers line {number} has", len(row), limit)
    return [_folded(row, raw.shape) for row in rows]


def shown(answer: "Inference") -> dict[str, Any]:
    """The first answers, each with its most probable classes; how they came about."""
    return {
        "answers": [_answer(answer, row) for row in range(min(SHOWN, len(answer.outputs)))],
        "inputs": len(answer.outputs),
        "mode": answer.mode,
        "nodes": answer.nodes,
        "seconds": answer.seconds,
    }


def _answer(answer: "Inference", row: int) -> dict[str, Any]:
    label = answer.labels[row] if answer.labels else ""
    outputs = [float(number) for number in answer.outputs[row].reshape(-1)[:SHOWN]]
    if answer.probabilities is None:
        return {"label": label, "classes": [], "outputs": outputs}
    pairs = zip(answer.classes, map(float, answer.probabilities[row]), strict=True)
    best = sorted(pairs, key=lambda pair: -pair[1])[:SHOWN]
    return {
        "label": label,
        "classes": [{"name": name, "probability": probability} for name, probability in best],
        "outputs": outputs,
    }


def _numbers(line: str) -> list[float]:
    """Whole numbers stay whole: some models take no others."""
    words = line.replace(",", " ").replace(";", " ").split()
    try:
        return [int(word) if word.lstrip("+-").isdecimal() else float(word) for word in words]
    except ValueError as error:
        raise InvalidArgumentError(f"A line of an input has something else than numbers: {error}") from error


def _folded(numbers: list[float], shape: Iterable[int]) -> Any:
    """The numbers as lists of a shape."""
    lengths = list(shape)
    if len(lengths) < 2:
        return numbers if lengths else numbers[0]
    size = len(numbers) // lengths[0] if lengths[0] else 0
    return [_folded(numbers[i * size : (i + 1) * size], lengths[1:]) for i in range(lengths[0])]


def _kind(name: str) -> str:
    kind = Path(name).suffix.lower()
    if kind not in FILE_KINDS:
        raise InvalidArgumentError.of_field("the file", name, f"one of {', '.join(FILE_KINDS)}")
    return kind


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise InvalidArgumentError(f"The file isn't base64: {error}") from error
