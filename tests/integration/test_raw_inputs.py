"""Aim: models of the built-in tasks are asked about raw samples, and answer as their training evaluates them.

Method: each is trained a little in this process, stored as a worker would, and asked in every mode.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_parts import store
from PIL import Image
from safetensors.torch import save_file
from test_data_sets import OFFICIAL, idx

from peerloom import AsyncClient, Embedded
from peerloom.errors import DataLossError, InvalidArgumentError, PeerloomError
from peerloom.kit.raw_input import RawInput
from peerloom.worker.declaration import check_declaration
from peerloom.worker.description import origin_of
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.task import Split, Task, load_data, load_task, sample_losses, sample_scores

LIMIT_S = 60.0
TEXT_ARGUMENTS = {"width": "16", "depth": "2", "heads": "2", "context": "32"}
pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True)
class Trained:
    """A model, its raw test samples, and what plain torch answers to them as the training evaluates it."""

    digest: str
    raw: np.ndarray
    outputs: np.ndarray
    targets: np.ndarray
    score: float


@dataclass(frozen=True)
class Asked:
    """A system and the models that its first node holds."""

    system: Embedded
    models: dict[str, Trained]
    mislabelled: str


def trained(task: Task, steps: int) -> tuple[torch.nn.Module, Split, Split]:
    """The task's model after a few steps on one thread, and both parts of its data."""
    train, test = load_data(task)
    assert isinstance(train, Split)
    assert isinstance(test, Split)
    torch.manual_seed(5)
    model = task.model()
    check_declaration(task, train, model, torch.device("cpu"))
    optimiser = task.optimiser(model.parameters(), task.learning_rate)
    for _ in range(steps):
        inputs, targets = task.batch(train, torch.randint(len(train), (32,)))
        optimiser.zero_grad()
        sample_losses(task, model(inputs), targets).mean().backward()
        optimiser.step()
    return model.eval(), train, test


def left_by(name: str, arguments: dict[str, str], steps: int, address: str, path: Path) -> Trained:
    """A model trained and stored with its origin."""
    task = load_task(name, arguments)
    model, train, test = trained(task, steps)
    save_file(model.state_dict(), path, origin_of(task, name, arguments, train, model).to_metadata())
    inputs, targets = task.batch(test, torch.arange(len(test)))
    with torch.inference_mode():
        outputs = model(inputs)
        score = float(sample_scores(task, outputs, targets).mean())
    return Trained(
        asyncio.run(store(address, path)), test.inputs.numpy(), outputs.numpy(), targets.numpy(), score
    )


def write_mnist(folder: Path) -> None:
    """The official four files: image i of class c is bright in row 2 c, and noise."""
    chance = np.random.default_rng(4)
    for part, count in (("train", 60), ("t10k", 30)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = chance.integers(0, 100, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), 2 * labels] = 255
        for name, values in zip(OFFICIAL[part], (images, labels), strict=True):
            (folder / name).write_bytes(idx(values))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Only node-1 has the models: the other fetches them when it is asked."""
    folder = tmp_path_factory.mktemp("raw")
    write_mnist(folder)
    (folder / "text.txt").write_text("All the world's a stage. " * 60)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, Embedded(folder / "state", (0, 0)) as system:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        address = system.addresses["node-1"]
        wanted = {
            "digits": ({}, 60),
            "mnist": ({"data": str(folder)}, 20),
            "text": ({**TEXT_ARGUMENTS, "data": str(folder / "text.txt")}, 20),
        }
        models = {
            name: left_by(name, arguments, steps, address, folder / f"{name}.safetensors")
            for name, (arguments, steps) in wanted.items()
        }
        task = load_task("digits", {})
        assert task.raw_input is not None
        lying = replace(task.raw_input, labels=("odd", "even"))
        path = folder / "lying.safetensors"
        save_file(
            task.model().state_dict(),
            path,
            ModelOrigin("digits", {}, (1, 8, 8), "float32", (), lying).to_metadata(),
        )
        yield Asked(system, models, asyncio.run(store(address, path)))
    torch.set_num_threads(before)


@pytest.fixture
async def client(asked: Asked) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(asked.system.address) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["remote", "split", "local"])
@pytest.mark.parametrize("name", ["digits", "mnist"])
async def test_raw_samples_are_answered_as_the_training_evaluates_them(
    asked: Asked, client: AsyncClient, name: str, mode: str
) -> None:
    model = asked.models[name]
    answer = await client.infer(model.digest, model.raw, mode, stages=2 if mode == "split" else 0)  # type: ignore[arg-type]  # parametrized
    np.testing.assert_allclose(answer.outputs, model.outputs, rtol=1e-4, atol=1e-5)
    assert [int(label) for label in answer.labels] == model.outputs.argmax(axis=1).tolist()
    right = np.array([int(label) for label in answer.labels]) == model.targets
    assert right.mean() == pytest.approx(model.score)
    assert model.score > 0.5  # it learned: by chance it is 0.1
    assert answer.classes == tuple("0123456789")
    assert answer.probabilities is not None
    assert answer.probabilities.sum(axis=1) == pytest.approx(np.ones(len(right)))


@pytest.mark.parametrize("mode", ["remote", "split", "local"])
async def test_text_is_answered_at_its_length_and_continued(
    asked: Asked, client: AsyncClient, mode: str
) -> None:
    """A text's answer is what may follow its last byte."""
    model = asked.models["text"]
    whole = await client.infer(model.digest, model.raw, mode)  # type: ignore[arg-type]  # parametrized
    np.testing.assert_allclose(whole.outputs, model.outputs[:, -1], rtol=1e-4, atol=1e-4)
    text = model.raw[0].tobytes()[:9]
    some = await client.infer(model.digest, text.decode(), mode)  # type: ignore[arg-type]  # parametrized
    np.testing.assert_allclose(some.outputs, model.outputs[:1, 8], rtol=1e-4, atol=1e-4)
    assert some.labels == ()
    stages = 2 if mode == "split" else 0
    made = client.generate(model.digest, text, tokens=1, mode=mode, stages=stages)  # type: ignore[arg-type]  # parametrized
    [token] = [one async for one in made]
    assert token.token == model.outputs[0, 8].argmax()


async def test_texts_of_several_lengths_may_wait_together(asked: Asked, client: AsyncClient) -> None:
    model = asked.models["text"]
    texts = [model.raw[0].tobytes()[:length].decode() for length in (3, 7, 7, 20)]
    answers = await asyncio.gather(
        *(client.infer(model.digest, text, "remote", hedge=False) for text in texts)
    )
    for answer, text in zip(answers, texts, strict=True):
        expected = model.outputs[:1, len(text) - 1]
        np.testing.assert_allclose(answer.outputs, expected, rtol=1e-4, atol=1e-4)


async def test_files_of_every_kind_get_the_array_s_answers(
    asked: Asked, client: AsyncClient, tmp_path: Path
) -> None:
    """Three digits as they are; their pixels 0 to 16 are 0 to 255 in a picture, black to white."""
    model = asked.models["digits"]
    raw, expected = model.raw[:3], model.outputs[:3]
    np.save(tmp_path / "three.npy", raw)
    rows = "\n".join(",".join(str(pixel) for pixel in digit.reshape(-1)) for digit in raw)
    (tmp_path / "three.csv").write_text(rows)
    (tmp_path / "headed.csv").write_text(",".join(f"p{n}" for n in range(64)) + "\n" + rows)
    pictures = [tmp_path / f"{number}.png" for number in range(3)]
    for picture, digit in zip(pictures, raw, strict=True):
        Image.fromarray(np.rint(digit[0] * (255 / 16)).astype(np.uint8)).save(picture)
    for files in (*([tmp_path / name] for name in ("three.npy", "three.csv", "headed.csv")), pictures):
        answer = await client.infer(model.digest, files, "local")
        np.testing.assert_allclose(answer.outputs, expected, rtol=1e-4, atol=1e-5)
    (tmp_path / "a.txt").write_bytes(text := asked.models["text"].raw[0].tobytes())
    shown = await client.infer(asked.models["text"].digest, tmp_path / "a.txt", "local")
    np.testing.assert_allclose(shown.outputs[0], asked.models["text"].outputs[0, -1], rtol=1e-4, atol=1e-4)
    assert len(text) == 32


@pytest.mark.parametrize("mode", ["remote", "local"])
@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (np.linspace(0, 1, 64).reshape(1, 1, 8, 8), r"inputs\[0, 0, 0, 1\] is .* whole values from 0 to 16"),
        (np.full((1, 1, 8, 8), 255), "255, but the model takes values from 0 to 16"),
        (np.full((1, 1, 8, 8), np.nan), "is nan"),
        (np.zeros((2, 8, 9)), r"float64\[2, 8, 9\]', but must be uint8\[n, 1, 8, 8\] of values from 0 to 16"),
        ("a five", "is 'text', but must be uint8"),
        (np.array(["five"]), "must be numbers"),
    ],
)
async def test_what_a_model_does_not_take_is_refused_with_what_it_does(
    asked: Asked, client: AsyncClient, inputs: Any, said: str, mode: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        await client.infer(asked.models["digits"].digest, inputs, mode)  # type: ignore[arg-type]  # parametrized


async def test_a_node_refuses_what_a_client_did_not_check(
    asked: Asked, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.inference.client.input_files.raw_values", lambda inputs, _: inputs)
    wrong = np.full((1, 1, 8, 8), 17, dtype=np.uint8)
    for mode in ("remote", "split"):
        with pytest.raises(PeerloomError, match="17, but the model takes values from 0 to 16"):
            await client.infer(asked.models["digits"].digest, wrong, mode)  # type: ignore[arg-type]  # both are modes


async def test_labels_that_are_not_the_outputs_are_told(asked: Asked, client: AsyncClient) -> None:
    with pytest.raises(DataLossError, match=r"names 2 classes, but its outputs are \[1, 10\]"):
        await client.infer(asked.mislabelled, asked.models["digits"].raw[:1], "remote")


def wide_picture(folder: Path) -> Path:
    Image.new("L", (9, 8)).save(folder / "wide.png")
    return folder / "wide.png"


def colour_picture(folder: Path) -> Path:
    Image.new("RGB", (8, 8)).save(folder / "colour.png")
    return folder / "colour.png"


def damaged_picture(folder: Path) -> Path:
    Image.new("L", (8, 8), 7).save(folder / "damaged.png")
    (folder / "damaged.png").write_bytes((folder / "damaged.png").read_bytes()[:50])
    return folder / "damaged.png"


def short_rows(folder: Path) -> Path:
    (folder / "short.csv").write_text("1,2,3\n4,5,6\n")
    return folder / "short.csv"


def uneven_rows(folder: Path) -> Path:
    (folder / "uneven.csv").write_text("1,2,3\n4,5\n")
    return folder / "uneven.csv"


def text_file(folder: Path) -> Path:
    (folder / "five.txt").write_text("five")
    return folder / "five.txt"


def strange_file(folder: Path) -> Path:
    (folder / "five.bmp").write_bytes(b"BM\xff")
    return folder / "five.bmp"


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (wide_picture, r"L of 8 x 9 pixels.*grey.*\[1, 8, 8\]"),
        (colour_picture, r"RGB of 8 x 8 pixels.*grey"),
        (damaged_picture, "damaged.png can't be read as a PNG"),
        (short_rows, r"3 numbers.*64 long, for uint8\[n, 1, 8, 8\]"),
        (uneven_rows, "uneven.csv can't be read as rows of numbers"),
        (text_file, r"is 'text', but must be uint8\[n, 1, 8, 8\]"),
        (strange_file, "five.bmp can't be read as JSON, nor is it .npy"),
    ],
)
async def test_a_file_that_does_not_fit_is_named(
    asked: Asked, client: AsyncClient, tmp_path: Path, write: Any, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        await client.infer(asked.models["digits"].digest, write(tmp_path), "local")


async def test_a_picture_or_text_for_a_model_of_before_is_refused(
    asked: Asked, client: AsyncClient, tmp_path: Path
) -> None:
    """A file without a declaration takes tensors as it did."""
    task = load_task("digits", {})
    path = tmp_path / "before.safetensors"
    origin = ModelOrigin("digits", {}, (1, 8, 8), "float32")
    save_file(task.model().state_dict(), path, origin.to_metadata())
    digest = await store(asked.system.addresses["node-1"], path)
    answer = await client.infer(digest, np.full((1, 1, 8, 8), -3.5, dtype=np.float32), "remote")
    assert (answer.outputs.shape, answer.labels, answer.probabilities) == ((1, 10), (), None)
    for inputs in ("five", wide_picture(tmp_path)):
        with pytest.raises(InvalidArgumentError, match="takes arrays only"):
            await client.infer(digest, inputs, "remote")


def test_a_declaration_is_no_longer_than_its_file_may_say() -> None:
    labels = tuple(f"{number:045}" for number in range(1000))
    raw = RawInput((1,), "uint8", 0, 1, None, labels)
    raw.check("raw_input")
    assert len(ModelOrigin("digits", {}, (1,), "uint8", (), raw).to_metadata()["peerloom"]) < 65_536
