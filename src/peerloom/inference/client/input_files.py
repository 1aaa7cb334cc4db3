"""Inputs from files: arrays, lists, tables, pictures and text, as the model's task declared them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.errors import FailedPreconditionError, InvalidArgumentError
from peerloom.kit.raw_input import RawInput
from peerloom.kit.raw_values import encode, raw_values, shape_of

Array = npt.NDArray[Any]
_KINDS = {
    ".npy": "a .npy array",
    ".csv": "rows of numbers",
    ".json": "JSON",
    ".png": "a PNG",
    ".txt": "text in UTF-8",
}
_CHANNELS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}  # by the modes of Pillow


def batch_of(inputs: Any, raw: RawInput | None, dtype: str) -> Array:
    """A batch of what a caller gave: an array, lists, text (or a list), or the path of a file (or a list).

    Raw inputs are checked where `raw` declares them; lists become `dtype` where nothing does. Raises
    InvalidArgumentError, which says what was expected and what was given.
    """
    if files := _each(inputs, Path):
        inputs = read_files(files, raw)
    if texts := _each(inputs, (str, bytes)):
        inputs = encode(texts, _declared(raw, "text"))
    if raw is not None:
        return raw_values(inputs, raw)
    if isinstance(inputs, np.ndarray):
        return np.ascontiguousarray(inputs)
    return np.asarray(inputs, dtype=dtype)


def read_files(files: Sequence[Path], raw: RawInput | None) -> Any:
    """What the files hold, in their order: .npy, .json, .csv (a row each), .png or .txt (one input each).

    Raises InvalidArgumentError naming the file that can't be read, or that holds something else.
    """
    parts = [_read(file.expanduser(), raw) for file in files]
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, str) for part in parts):
        return parts
    try:
        return np.concatenate([np.asarray(part) for part in parts])
    except ValueError as error:
        shapes = ", ".join(str(list(np.shape(part))) for part in parts[:5])
        raise InvalidArgumentError.of_field("inputs", f"files of {shapes}", "of one shape") from error


def _read(file: Path, raw: RawInput | None) -> Any:
    kind = file.suffix.lower()
    try:
        match kind:
            case ".npy":
                return np.load(file, allow_pickle=False)
            case ".csv":
                return _rows(file, raw)
            case ".png":
                return _picture(file, _declared(raw, "pictures"))[None]
            case ".txt":
                return file.read_bytes().decode()
        inputs = json.loads(file.read_text())
    except (ValueError, OSError, SyntaxError) as error:  # Pillow raises the last for a damaged file
        wanted = _KINDS.get(kind, "JSON, nor is it .npy, .csv, .png or .txt")
        raise InvalidArgumentError(
            f"{file} can't be read as {wanted}: {error}", reason="INPUTS_UNREADABLE"
        ) from error
    if not isinstance(inputs, list) or not inputs:
        raise InvalidArgumentError(f"{file} must hold a list of inputs, at least one.")
    return inputs


def _rows(file: Path, raw: RawInput | None) -> Array:
    """A row for each input, its numbers one after the other; a first line of words is left out."""
    with file.open(encoding="utf-8") as lines:
        is_head = any(not _is_number(word) for word in lines.readline().split(","))
    rows = np.loadtxt(file, delimiter=",", skiprows=int(is_head), ndmin=2, encoding="utf-8")
    if raw is None or raw.vocabulary:
        return rows
    numbers = int(np.prod(raw.shape))
    if rows.shape[1] != numbers:
        limit = f"{numbers} long, for {shape_of(raw)}"
        raise InvalidArgumentError.of_field(f"each row of {file}", f"{rows.shape[1]} numbers", limit)
    return rows.reshape(-1, *raw.shape)


def _picture(file: Path, raw: RawInput) -> Array:
    """A PNG's pixels, black being the least and white the largest value that the model takes."""
    try:
        from PIL import Image
    except ImportError as error:
        text = "Pillow isn't installed here, which reads PNG: pip install 'peerloom[images]'"
        raise FailedPreconditionError(text, reason="NO_PILLOW") from error
    with Image.open(file, formats=["PNG"]) as picture:
        mode = _CHANNELS.get(picture.mode)
        given = f"{picture.mode} of {picture.height} x {picture.width} pixels"
        layouts = {(picture.height, picture.width): "L", (1, picture.height, picture.width): "L"}
        layouts[3, picture.height, picture.width] = "RGB"
        if mode is None or layouts.get(raw.shape) != mode:
            limit = f"8-bit grey (L) or RGB without transparency that gives {list(raw.shape)}"
            raise InvalidArgumentError.of_field(str(file), given, limit)
        pixels = np.asarray(picture.convert(mode), dtype=np.float64)
    channels = pixels.transpose(2, 0, 1) if mode == "RGB" else pixels
    values = raw.low + channels.reshape(raw.shape) * (raw.high - raw.low) / 255
    return values if np.dtype(raw.dtype).kind == "f" else np.rint(values)


def _declared(raw: RawInput | None, what: str) -> RawInput:
    if raw is None:
        raise InvalidArgumentError(
            f"The model doesn't say how {what} become its inputs, so it takes arrays only.",
            reason="NOTHING_DECLARED",
        )
    return raw


def _each(inputs: Any, kinds: type | tuple[type, ...]) -> list[Any]:
    """The inputs as a list if they, or all in a list, are of these kinds; else nothing."""
    found = [inputs] if isinstance(inputs, kinds) else inputs
    is_list = isinstance(found, list | tuple) and all(isinstance(one, kinds) for one in found)
    return list(found) if is_list else []


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
