"""Models and checkpoints in the formats of others: what was trained is what they load, bit for bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_state_dict,
)

from peerloom.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    PeerloomError,
)
from peerloom.model_formats.hugging_face import shards_of
from peerloom.model_formats.writing import tokenizer_in, write_format
from peerloom.worker.kept_tensors import KeptTensors
from peerloom.worker.model_config import config_of
from peerloom.worker.model_origin import ModelOrigin
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.updater import Updater

SMALL = {"vocab_size": 40, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
ENDS = {"bos_token_id": 0, "eos_token_id": 1}
WHOLE = 5_000_000_000
# Of torch's own functions, which say so where no group is at work; of peft, about transformers' names.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="needs transformers (peerloom[hf])")
    pytest.importorskip("peft", reason="needs peft (peerloom[hf])")


def gpt2(seed: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(**SMALL, **ENDS))


def lora(seed: int, base: int = 1) -> Any:
    from peft import LoraConfig, get_peft_model

    model = gpt2(base)
    torch.manual_seed(seed)
    return get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))


def state_of(model: nn.Module) -> TrainingState:
    """A state with an optimiser of two groups, in another order than the model's."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": trained[2:], "weight_decay": 0.0}, {"params": trained[:2]}]
    return TrainingState(model, Updater(model, [torch.optim.AdamW(groups, lr=0.25)]))


def stepped(state: TrainingState) -> TrainingState:
    """The same after a step on gradients of chance."""
    for parameter in state.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape)
    state.updater.step()
    state.step += 1
    return state


def stored(model: nn.Module, folder: Path) -> Path:
    """A model's file, as a job leaves it."""
    origin = ModelOrigin("own:Task", {}, (), "", input_names=("batch",), config=config_of(model))
    path = folder / "stored.safetensors"
    path.write_bytes(state_of(model).model_bytes(origin.to_metadata()))
    return path


def written(path: Path, format: str, folder: Path, shard_bytes: int = WHOLE) -> Path:
    write_format(path, "d" * 64, format, folder, shard_bytes, [])
    return folder


def test_transformers_load_shards_bit_for_bit_in_the_type_that_was_trained(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, GPT2LMHeadModel

    model = gpt2(1)
    model.config.dtype = "bfloat16"  # what it once was loaded from
    folder = written(stored(model, tmp_path), "hugging-face", tmp_path / "made", 8_000)
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 2
    assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == model.state_dict().keys()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(loaded, GPT2LMHeadModel)
    assert loaded.dtype == torch.float32
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_shards_are_filled_in_order_and_a_large_tensor_has_its_own() -> None:
    sizes = {"a": 4, "b": 4, "c": 1, "large": 20, "d": 1}
    assert shards_of(sizes, 8) == {"a": 1, "b": 1, "c": 2, "large": 3, "d": 4}
    assert set(shards_of(sizes, 30).values()) == {1}


def test_torch_loads_a_checkpoint_into_an_optimiser_of_another_order_by_name(tmp_path: Path) -> None:
    state = stepped(stepped(state_of(gpt2(1))))
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(state.to_bytes())
    folder = written(path, "dcp", tmp_path / "made")

    model = gpt2(2)
    named = dict(model.named_parameters())
    own = {parameter: name for name, parameter in state.model.named_parameters()}
    (trained,) = state.updater.optimisers
    asked = [sorted(own[p] for p in group["params"]) for group in trained.param_groups]
    optimiser = torch.optim.AdamW([{"params": [named[n] for n in names]} for names in asked])
    told = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimiser),
        "step": 0,
    }
    dcp.load(told, checkpoint_id=folder)
    set_state_dict(model, optimiser, model_state_dict=told["model"], optim_state_dict=told["optimizer"])
    assert told["step"] == 2
    for name, parameter in state.model.named_parameters():
        assert torch.equal(named[name], parameter)
        there = trained.state[parameter]
        here = optimiser.state[named[name]]
        assert here.keys() == there.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(here[key], there[key]) for key in there), name
    assert [group["lr"] for group in optimiser.param_groups] == [0.25, 0.25]
    assert optimiser.param_groups[0]["weight_decay"] == 0.0


def test_torch_loads_a_model(tmp_path: Path) -> None:
    model, other = gpt2(1), gpt2(2)
    folder = written(stored(model, tmp_path), "dcp", tmp_path / "made")
    told = {"model": other.state_dict()}
    dcp.load(told, checkpoint_id=folder)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in told["model"].items())


def test_of_an_adapter_only_its_own_is_kept_and_peft_loads_it(tmp_path: Path) -> None:
    from peft import PeftModel

    state = stepped(state_of(lora(3)))
    path = stored(state.model, tmp_path)
    assert len(state.to_bytes()) < 6_000 < sum(p.nbytes for p in state.model.parameters())
    loaded = PeftModel.from_pretrained(gpt2(1), written(path, "hugging-face", tmp_path / "made"))
    words = torch.arange(6)[None]
    with torch.no_grad():
        assert torch.equal(loaded.eval()(words).logits, state.model.eval()(words).logits)

    newcomer = state_of(lora(4))
    newcomer.from_bytes(state.to_bytes())
    assert newcomer.fingerprint() == state.fingerprint()
    newcomer = state_of(lora(4))
    newcomer.load_model(path.read_bytes())
    assert newcomer.parameters_digest() == state.parameters_digest()
    with pytest.raises(DataLossError, match="trained on another base model"):
        state_of(lora(4, base=2)).from_bytes(state.to_bytes())
    with pytest.raises(DataLossError, match="only one of both adapters has"):
        newcomer.load_model(stored(gpt2(1), tmp_path).read_bytes())


def test_adapters_that_are_no_parameters_of_layers_are_refused() -> None:
    from peft import LoraConfig, PromptTuningConfig, get_peft_model

    prompts = get_peft_model(gpt2(1), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(InvalidArgumentError, match="which is computed"):
        KeptTensors(prompts)
    two = lora(1)
    two.add_adapter("second", LoraConfig(r=1, target_modules=["c_attn"], fan_in_fan_out=True))
    with pytest.raises(InvalidArgumentError, match="default, second"):
        KeptTensors(two)


def test_a_config_leaves_paths_and_what_is_no_json_behind() -> None:
    model = gpt2(1)
    model.config._name_or_path = "/home/anna/secret/gpt2"
    told = config_of(model)
    assert told is not None
    assert told["model_type"] == "gpt2"
    assert "secret" not in json.dumps(told)
    adapter = lora(1)
    adapter.peft_config["default"].base_model_name_or_path = "/home/anna/secret/gpt2"
    told = config_of(adapter)
    assert told is not None
    assert (told["base_model_name_or_path"], told["target_modules"]) == ("gpt2", ["c_attn"])
    model.config.strange = object()
    assert config_of(model) is None
    assert config_of(nn.Linear(1, 1)) is None


def junk(folder: Path) -> Path:
    path = folder / "junk"
    path.write_bytes(b"{" * 100)
    return path


@pytest.mark.parametrize(
    ("make", "format", "expected", "words"),
    [
        (junk, "dcp", DataLossError, "is no model or checkpoint"),
        (lambda folder: stored(nn.Linear(2, 2), folder), "hugging-face", FailedPreconditionError, "config"),
    ],
)
def test_what_cannot_be_written_leaves_no_folder(
    make: Callable[[Path], Path], format: str, expected: type[PeerloomError], words: str, tmp_path: Path
) -> None:
    (tmp_path / "into").mkdir()
    with pytest.raises(expected, match=words):
        written(make(tmp_path), format, tmp_path / "into" / "made")
    assert list((tmp_path / "into").iterdir()) == []


def test_the_tokenizer_nearest_to_the_top_comes_along(tmp_path: Path) -> None:
    assert tokenizer_in([tmp_path]) == []
    for name in ("base/tokenizer.json", "base/vocab.txt", "base/deep/merges.txt", "base/model.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [file.name for file in tokenizer_in([tmp_path])] == ["tokenizer.json", "vocab.txt"]
