"""What a model says of its own shape, as data: the config of transformers, or of an adapter by peft."""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from torch import nn

from peerloom.kit.logs import get_logger
from peerloom.worker.kept_tensors import adapter_names

_log = get_logger()
LONGEST_CONFIG = 131_072  # characters of JSON; a thousand named classes take half of it
ADAPTER_KEY = "peft_type"  # which only an adapter's config has


def config_of(model: nn.Module) -> dict[str, Any] | None:
    """The config with which others build the model, as JSON keeps it; None for a model that has none.

    Of transformers' that is `model.config`, with the class and the type of the parameters as they are now.
    Paths of the machine that made it are left out. One that JSON can't hold, or that is longer than 131,072
    characters, is left out too, and logged.
    """
    try:
        told = _told_by(model)
        if told is None:
            return None
        text = json.dumps(told, default=_plain)
    except Exception as error:  # of anybody's class; a training isn't lost for it
        _log.warning("config_left_out", reason=f"{type(error).__name__}: {error}")
        return None
    if len(text) > LONGEST_CONFIG:
        reason = f"it has {len(text):,} of at most {LONGEST_CONFIG:,} characters"
        _log.warning("config_left_out", reason=reason)
        return None
    config: dict[str, Any] = json.loads(text)
    return config


def _told_by(model: Any) -> dict[str, Any] | None:
    if adapter_names(model) is not None:
        (config,) = model.peft_config.values()
        base = config.base_model_name_or_path
        local = base is not None and PurePath(base).is_absolute()
        own = {"inference_mode": True, "base_model_name_or_path": PurePath(base).name if local else base}
        return {**config.to_dict(), **own}
    if not callable(getattr(getattr(model, "config", None), "to_dict", None)):
        return None
    told = dict(model.config.to_dict())
    told.pop("_name_or_path", None)
    first = next((each for each in model.parameters() if each.is_floating_point()), None)
    if first is not None:
        told["dtype"] = str(first.dtype).removeprefix("torch.")
    return {**told, "architectures": [type(model).__name__]}


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")
