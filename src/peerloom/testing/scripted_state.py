"""The state of a scripted training: the list of what it was trained on, where a real one has parameters.

It travels as a real one does: from peers, in checkpoints, in the model. So the model itself tells which
samples made it.
"""

import hashlib
import json
from dataclasses import dataclass, field

from peerloom.kit.safetensors_file import METADATA_KEY
from peerloom.worker.model_origin import ModelOrigin

BUFFERS = ("evaluated",)


@dataclass
class ScriptedState:
    """What was committed: each step's epoch (from 1), samples (first, one past the last) and generation.

    Two generations that make the same step from the same samples come to parameters that differ in their last
    digits, so the generation is part of what the parameters' digest stands for.
    """

    trail: list[tuple[int, int, int, int]] = field(default_factory=list)
    evaluated: int = 0

    @property
    def step(self) -> int:
        """How many steps."""
        return len(self.trail)

    def fingerprint(self) -> float:
        """A number from 0 to 1, other for each way of training."""
        return hashlib.sha256(json.dumps(self.trail).encode()).digest()[0] / 255

    def to_bytes(self, origin: ModelOrigin | None = None) -> bytes:
        """A safetensors file: what was evaluated may differ between workers, as buffers do.

        A model's says of which `origin` it is, where a checkpoint has none.
        """
        metadata = origin.to_metadata() if origin else {METADATA_KEY: json.dumps({"buffers": BUFFERS})}
        trail, evaluated = json.dumps(self.trail).encode(), json.dumps(self.evaluated).encode()
        end = len(trail) + len(evaluated)
        header = json.dumps(
            {
                "__metadata__": metadata,
                "trail": {"dtype": "U8", "shape": [len(trail)], "data_offsets": [0, len(trail)]},
                "evaluated": {"dtype": "U8", "shape": [end - len(trail)], "data_offsets": [len(trail), end]},
            }
        ).encode()
        return len(header).to_bytes(8, "little") + header + trail + evaluated

    @classmethod
    def from_bytes(cls, data: bytes) -> "ScriptedState":
        """From an artifact."""
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        trail, evaluated = (
            json.loads(data[begin + first : begin + end])
            for first, end in (header[name]["data_offsets"] for name in ("trail", "evaluated"))
        )
        return cls([(epoch, first, end, by) for epoch, first, end, by in trail], evaluated)
