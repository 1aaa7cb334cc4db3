"""The types of tensors by their names in safetensors files."""

import torch

# Stages tell each other a type by its place here.
TENSOR_TYPES: dict[str, torch.dtype] = {
    "F32": torch.float32,
    "F64": torch.float64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
TENSOR_TYPE_NAMES = {dtype: name for name, dtype in TENSOR_TYPES.items()}
