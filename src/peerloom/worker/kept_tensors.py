"""Which of a model's tensors are trained, sent and stored: all of its state, or with an adapter only that."""

import sys

from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError


class KeptTensors:
    """The tensors of a `model` that its file, checkpoints and newcomers have, by the names that they go by.

    Of a PeftModel these are the adapter's, by peft's own names; its base is on each worker already. Raises
    InvalidArgumentError for several adapters, and for one whose tensors aren't the model's own.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._own_names = adapter_names(model)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of those that are no parameters, in order; an adapter has none."""
        if self._own_names is not None:
            return ()
        parameters = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        return tuple(sorted(self._model.state_dict().keys() - parameters))

    def tensors(self) -> dict[str, Tensor]:
        """The model's own tensors, not copies."""
        state: dict[str, Tensor] = self._model.state_dict()
        return state if self._own_names is None else {n: state[own] for n, own in self._own_names.items()}

    def base(self) -> list[Tensor]:
        """The parameters that are left as they were, and not kept."""
        return [] if self._own_names is None else [p for p in self._model.parameters() if not p.requires_grad]

    def take(self, tensors: dict[str, Tensor]) -> None:
        """Puts tensors of these names into the model. Raises ValueError or RuntimeError if they don't fit."""
        if self._own_names is None:
            self._model.load_state_dict(tensors)
            return
        if different := sorted(tensors.keys() ^ self._own_names.keys()):
            raise ValueError(f"only one of both adapters has {different[0]!r}")
        self._model.load_state_dict({self._own_names[n]: t for n, t in tensors.items()}, strict=False)


def adapter_names(model: nn.Module) -> dict[str, str] | None:
    """The names in a PeftModel's state of its adapter's tensors, by their names in peft's files; else None.

    Raises InvalidArgumentError as `KeptTensors` does.
    """
    peft = sys.modules.get("peft")  # whoever has a model of it has imported it
    if peft is None or not isinstance(model, peft.PeftModel):
        return None
    if len(model.peft_config) != 1:
        found = ", ".join(model.peft_config)
        raise InvalidArgumentError.of_field("model's adapters", found, "one, which is trained and stored")
    (adapter,) = model.peft_config
    state = model.state_dict()
    own = {(tensor.data_ptr(), tensor.shape): name for name, tensor in state.items()}
    kept = peft.get_peft_model_state_dict(
        model, state_dict=dict(state), adapter_name=adapter, save_embedding_layers=False
    )
    if strange := [n for n, tensor in kept.items() if (tensor.data_ptr(), tensor.shape) not in own]:
        limit = "one that adds parameters to layers, as LoRA does"
        raise InvalidArgumentError.of_field("model's adapter", f"of {strange[0]!r}, which is computed", limit)
    return {name: own[tensor.data_ptr(), tensor.shape] for name, tensor in kept.items()}
