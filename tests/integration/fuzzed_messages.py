"""Messages that nobody meant, made from the descriptors of their types; the same for the same seed."""

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

MAX_DEPTH = 4
LARGE_BYTES = 10_000_000


def token(key: bytes) -> str:
    """A page token with this inside."""
    return base64.urlsafe_b64encode(key).decode()


TEXTS = (
    "",
    "x",
    "ada",
    "a" * 64,
    "127.0.0.1:1",
    "x" * 70_000,
    "\x00\x1b[2J\x07\r\n",
    "\u202egnp.exe\u2066",
    "../../etc/passwd",
    "'; DROP TABLE nodes; --",
    "node-0123456789ab",
    "lease-" + "0" * 32,
    "digits",
    "f" * 64,
    "00000000-0000-4000-8000-000000000000",
    "!",
    token(b"[" * 2000),
    token(b"{}"),
    token(b'["a", 1]'),
    token(b"[1, 2]"),
    token(b"[NaN, 1]"),
    token(json.dumps(2**70).encode()),
    token(json.dumps(-(2**70)).encode()),
    token(b"1e999"),
    token(b'"\\ud800"'),
    token(b"true"),
    token(b"\xff\xfe"),
)
BYTES = (b"", b"x", b"\x00" * 32, b"\xff" * 33, b"y" * 100_000)
FLOATS = (0.0, 0.5, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
SIGNED = (0, 1, -1, 7, 1000, 2**31 - 1, -(2**31))
UNSIGNED = (0, 1, 7, 1000, 2**31, 2**32 - 1)
SIGNED_64 = (*SIGNED, 2**63 - 1, -(2**63), 253_402_300_800)
UNSIGNED_64 = (*UNSIGNED, 2**63, 2**64 - 1)
OF_KIND: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: SIGNED,
    FieldDescriptor.CPPTYPE_INT64: SIGNED_64,
    FieldDescriptor.CPPTYPE_UINT32: UNSIGNED,
    FieldDescriptor.CPPTYPE_UINT64: UNSIGNED_64,
    FieldDescriptor.CPPTYPE_DOUBLE: FLOATS,
    FieldDescriptor.CPPTYPE_FLOAT: FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 999, -1),
}


class MessageFuzzer:
    """Makes requests from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def requests(self, kind: Descriptor, count: int) -> Iterator[bytes]:
        """`count` requests of this type as bytes: messages with wild values, and bytes that are none."""
        yield b""
        for number in range(count - 1):
            wire = self.message(kind).SerializeToString()
            yield self._broken(wire) if number % 4 == 3 else wire

    def message(self, kind: Descriptor, depth: int = 0) -> Message:
        """A message whose fields are set at random, often at their limits and beyond."""
        found = GetMessageClass(kind)()
        for field in kind.fields:
            if self._chance.random() < 0.6:
                self._fill(found, field, depth)
        return found

    def _fill(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and depth >= MAX_DEPTH:
            return
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                for _ in range(self._chance.choice((1, 3, 40))):
                    key = self._chance.choice(TEXTS) + str(self._chance.random())
                    getattr(message, field.name)[key] = self._scalar(value)
        elif field.is_repeated:
            for _ in range(self._chance.choice((1, 3, 1500 if depth == 0 else 2))):
                getattr(message, field.name).append(self._value(field, depth))
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(self.message(field.message_type, depth + 1))
        else:
            setattr(message, field.name, self._scalar(field))

    def _value(self, field: FieldDescriptor, depth: int) -> Any:
        if field.message_type is not None:
            return self.message(field.message_type, depth + 2)
        return self._scalar(field)

    def _scalar(self, field: FieldDescriptor) -> Any:
        if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
            return self._chance.choice(OF_KIND[field.cpp_type])
        return self._chance.choice(BYTES if field.type == FieldDescriptor.TYPE_BYTES else TEXTS)

    def _broken(self, wire: bytes) -> bytes:
        """Bytes cut short, with wrong UTF-8, of chance alone, or far too many."""
        match self._chance.randrange(4):
            case 0:
                return wire[: self._chance.randrange(len(wire) + 1)]
            case 1:
                return b"\x0a\x04\xff\xfe\xc0\x80" + wire
            case 2:
                return self._chance.randbytes(64)
            case _:
                return b"\x0a" + _varint(LARGE_BYTES) + b"x" * LARGE_BYTES


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
