"""Damaged files: bytes, words of texts, fields of messages and members of HDF5 files are changed at random."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Sequence

from google.protobuf import text_format
from google.protobuf.message import Message

MOST = 1 << 20  # bytes of an input: a limit of seconds is for small files, reading takes time in proportion
Change = Callable[[bytes, random.Random], bytes]
NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -1,
    -2,
    -128,
    -(2**31),
    -(2**31) - 1,
    -(2**63),
)
WORDS = (
    "-1",
    "0",
    "1e999",
    "-1e999",
    "nan",
    "2147483648",
    "9223372036854775808",
    "9" * 25,
    "9" * 5000,
    "1.5",
    "true",
    "''",
    '""',
    "{",
    "}",
    "{}",
    "[",
    "]",
    ":",
    "#",
    "\0",
    "\ufffd",
    "é",
    " ",
    "\t",
    "\r\n",
    "a" * 300,
    "../x",
    "/",
    "{" * 3000,
    "[" * 3000,
    "a {" * 2000,
    "null",
    "\\",
    "\\x",
    "%s",
    "-",
    "1 " * 3000,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e38, -1e38, 1e-45, float("inf"), float("-inf"), float("nan"), 0.5)
TEXTS = ("", "a", "data", "é", "/etc/passwd", "..", "a" * 300, "a/b", "x\0y", "\n", "%s", "{", "//")


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are flipped, set, left out, doubled, moved or cut off."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(made) + 1), rng.randrange(8)
        length = rng.choice((1, 2, 4, 8, 16, rng.randrange(1, 4096)))
        if kind == 0 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))])
        elif kind == 2:
            size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
            made[at : at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, order)
        elif kind == 3:
            del made[at : at + length]
        elif kind == 4:
            made[at:at] = made[at : at + length]
        elif kind == 5:
            made[at:at] = rng.randbytes(length)
        elif kind == 6:
            begin = rng.randrange(len(made) + 1)
            made[at : at + length] = made[begin : begin + length]
        elif rng.random() < 0.3:
            del made[at:]
    return bytes(made)


def change_text(data: bytes, rng: random.Random) -> bytes:
    """Some words or lines are left out, doubled, moved or replaced."""
    parts = re.findall(rb"[\w.+-]+|\s+|.", data, re.S) if rng.random() < 0.7 else data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(parts) + 1), rng.randrange(5)
        if kind == 0:
            del parts[at : at + rng.choice((1, 1, 3, 20))]
        elif kind == 1:
            parts[at:at] = parts[at : at + rng.choice((1, 3, 20))] * rng.choice((1, 1, 2, 50))
        elif kind == 2 and parts:
            parts[at:at] = [rng.choice(parts)]
        elif kind == 3 and at < len(parts):
            parts[at] = str(rng.choice(WORDS)).encode()
        else:
            number = str(rng.choice(NUMBERS)).encode()
            found = [i for i, part in enumerate(parts) if part[:1].isdigit()]
            if found:
                parts[rng.choice(found)] = number
    return b"".join(parts)


def change_message(kind: type[Message], text: bool = False) -> Change:
    """A change of some fields of a message, which is read and written as text or in binary form."""

    def change(data: bytes, rng: random.Random) -> bytes:
        message = kind()
        if text:
            text_format.Parse(data.decode(), message)
        else:
            message.ParseFromString(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change_field(_somewhere(message, rng), rng)
        return text_format.MessageToString(message).encode() if text else message.SerializePartialToString()

    return change


def _somewhere(message: Message, rng: random.Random) -> Message:
    """The message itself, or one inside."""
    while rng.random() < 0.75:
        inside = []
        for field, value in message.ListFields():
            if field.message_type is not None:
                inside += list(value) if _repeated(field) else [value]
        if not inside:
            break
        message = rng.choice(inside)
    return message


def _repeated(field) -> bool:
    return getattr(field, "is_repeated", None) or getattr(field, "label", None) == 3


def _change_field(message: Message, rng: random.Random) -> None:
    known = [field for field, _ in message.ListFields()]
    field = rng.choice(known if known and rng.random() < 0.7 else message.DESCRIPTOR.fields)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is not None:
        if not _repeated(field):
            getattr(message, field.name).SetInParent()
            return
        inside = getattr(message, field.name)
        if len(inside) and rng.random() < 0.6:
            if rng.random() < 0.4:
                del inside[rng.randrange(len(inside))]
            else:
                inside.add().CopyFrom(rng.choice(inside))
        else:
            inside.add()
    elif _repeated(field):
        inside = getattr(message, field.name)
        for _ in range(rng.choice((1, 1, 2, 9))):
            inside.append(_value(field, rng))
        if rng.random() < 0.5 and len(inside) > 1:
            del inside[rng.randrange(len(inside))]
    else:
        setattr(message, field.name, _value(field, rng))


def _value(field, rng: random.Random):
    kind = field.cpp_type
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if kind == field.CPPTYPE_STRING:
        return rng.choice(TEXTS).encode() if field.type == field.TYPE_BYTES else rng.choice(TEXTS)
    bits, signed = (
        (32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64),
        kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64),
    )
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return rng.choice([n for n in NUMBERS if low <= n <= high])


def change_hdf5(data: bytes, rng: random.Random) -> bytes:
    """A member is left out, renamed, replaced by one of another type or shape, or by a link."""
    import h5py
    import numpy as np

    file = io.BytesIO(data)
    with h5py.File(file, "r+") as top:
        names: list[str] = []
        top.visit(names.append)
        name = rng.choice(names)
        group, _, last = name.rpartition("/")
        parent, kind = (top[group] if group else top), rng.randrange(10)
        if kind == 0:
            del parent[last]
        elif kind == 1:
            parent.move(last, rng.choice(("0", "1", "7", "x", "é", "a" * 300, "data", "-1", "9" * 25, "00")))
        elif kind == 2:
            parent.copy(last, rng.choice(("2", "copy", "00", "label", "data2")))
        elif kind == 3:
            top.attrs[rng.choice(("version", "x"))] = rng.choice((0, "a", 1.5))
        else:
            del parent[last]
            shape = rng.choice(((), (0,), (1,), (3, 4), (1, 1, 2, 3), (1 << 20, 1 << 20), (1 << 62,), (1,) * 32))
            large = int(np.prod(shape, dtype=object)) > 1000
            dtype = rng.choice(("f4", "f8", "i1", "i4", "u8", "f2", "S5", "c8", "bool", "f4,i4", ">f4"))
            if kind == 4:
                parent.create_group(last)
            elif kind == 5:
                parent[last] = h5py.SoftLink(rng.choice((f"/{name}", "/", "/absent")))
            elif kind == 6:
                parent[last] = h5py.ExternalLink(rng.choice(("/dev/zero", "/etc/passwd", "absent.h5")), "/data")
            elif kind == 7:
                parent.create_dataset(last, data=rng.choice(("text", b"\xff", "", "a" * 1000)))
            elif kind == 8 and shape:
                parent.create_dataset(last, data=rng.choice((float("nan"), 1e300, -1, 2**63 - 1)) * np.ones(3))
            else:
                chunks = tuple(min(64, max(1, n)) for n in shape) if shape and large else None
                parent.create_dataset(last, shape, dtype, chunks=chunks)
    return file.getvalue()


def changed(data: bytes, changes: Sequence[Change], rng: random.Random) -> bytes:
    """A file after one of the changes; now and then some of its bytes are changed, too. What is no file of the kind any
    more is changed by bytes."""
    try:
        made = rng.choice(changes)(data, rng)
    except Exception:  # a library that writes does not write everything
        made = change_bytes(data, rng)
    return (change_bytes(made, rng) if rng.random() < 0.1 else made)[:MOST]
