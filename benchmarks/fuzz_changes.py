"""Changes that damage a file: of its bytes, its lines, its values, its columns. Every one is drawn from a generator.

A change takes the bytes of a whole file and gives back other bytes, which may still be a legal file.
"""

import base64
import io
import json
import re
import struct
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, cast

Change = Callable[[bytes, Random], bytes]

NASTY: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**53, 2**63, 10**39, 10**400, -0.0, 0.5, 1e-300, 1e308, -1e308, "", " ", "NaN",
    "1e6", "\x1b[31mred\x1b[0m", "\u009b31m", "\u202eback", "a\nb", "x" * 5000, "²", "٣", "../../etc/passwd", [], {},
    [[]], [None], [0] * 300, {"name": "x"}, [[[[[[[[]]]]]]]], "0-300000000", {"\x1b[2J": 1},
)  # fmt: skip
GROWN = 3 * 10**6  # bytes of JSON that a value may grow to
TOKENS = (
    b"\x00", b"\xff", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\n", b"#", b"-", b"&a *a", b"!!python/object:os ",
    b"NaN", b"Infinity", b"1e999", b"9" * 400, b"[" * 3000, b"\xe2\x80\xae", b"\x1b[2J", b"null", b"{}", b"\r", b" | ",
)  # fmt: skip


def bytes_changed(data: bytes, draw: Random) -> bytes:
    """A flipped, lost, doubled, cut or inserted piece."""
    at, kind = draw.randrange(len(data) + 1), draw.randrange(5)
    end = min(len(data), at + draw.choice((1, 4, 64, 4096)))
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:end] + data[at:end] * draw.choice((1, 100)) + data[end:]
    return data[:at] if kind == 3 else data[:at] + draw.choice(TOKENS) + data[at:]


def lines_changed(data: bytes, draw: Random) -> bytes:
    """A lost, doubled or moved line, or another number in one."""
    lines = data.split(b"\n")
    at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(to, lines[at])
    elif kind == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        return numbers_changed(data, draw)
    return b"\n".join(lines)


def numbers_changed(data: bytes, draw: Random) -> bytes:
    """Another word in place of a number."""
    found = list(re.finditer(rb"\d+(?:\.\d+)?", data))
    if not found:
        return bytes_changed(data, draw)
    number = draw.choice(found)
    return data[: number.start()] + str(draw.choice(NASTY)).encode("utf-8", "replace") + data[number.end() :]


def json_changed(data: bytes, draw: Random) -> bytes:
    """One or two values of a JSON file become others, are lost, doubled or renamed."""
    raw = json.loads(data)
    for _ in range(draw.choice((1, 1, 2)) if isinstance(raw, dict | list) else 0):
        _change_value(raw, draw)
        if len(json.dumps(raw)) > GROWN // 2:  # its items may be one object: changed again, all of them would grow
            break
    return json.dumps(raw, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")


def json_lines_changed(data: bytes, draw: Random) -> bytes:
    """A value of one line of a journal becomes another."""
    lines = data.rstrip(b"\n").split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = json_changed(lines[at], draw)
    return b"\n".join(lines) + b"\n"


def sketches_changed(data: bytes, draw: Random) -> bytes:
    """Bytes of a packed part (base64) of a JSON file become others, or it becomes that of another feature."""
    raw = json.loads(data)
    feature, other = draw.choice(list(raw)), draw.choice(list(raw))
    name = draw.choice([name for name, value in raw[feature].items() if isinstance(value, str) and name != "schema"])
    if draw.random() < 0.3:
        raw[feature][name] = raw[other][name]
    else:
        raw[feature][name] = base64.b64encode(bytes_changed(base64.b64decode(raw[feature][name]), draw)).decode()
    return json.dumps(raw).encode()


def _change_value(raw: Any, draw: Random) -> None:
    """Change a value at any depth, in place."""
    here = raw
    while True:
        keys: list[Any] = list(cast(dict[str, Any], here)) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = draw.choice(keys)
        inner = here[key]
        if not (isinstance(inner, dict | list) and inner and draw.random() < 0.8):
            break
        here = inner
    _change_entry(here, key, draw)


def _change_entry(here: Any, key: Any, draw: Random) -> None:
    kind = draw.randrange(6)
    if kind == 0:
        del here[key]
    elif kind == 1 and isinstance(here, dict):
        here[draw.choice(("\x1b[2Jx", "nme", "x" * 3000))] = here[key]
    elif kind == 1:
        here.insert(draw.randrange(len(here) + 1), here[key])
    elif kind == 2 and isinstance(here[key], int | float) and abs(here[key]) < 1e300:
        here[key] = here[key] * draw.choice((-1, 0, 1e9, 1e300, 1e-300, 10**12))
    elif kind == 3 and isinstance(here, list):
        here *= _times(here, draw)
    elif kind == 4 and draw.random() < 0.2:
        nasty = [deepcopy(draw.choice(NASTY))]
        here[key] = nasty * max(_times(nasty, draw), 20)  # megabytes of wrong values
    else:
        here[key] = deepcopy(draw.choice(NASTY))  # which a second change may change


def _times(values: list[Any], draw: Random) -> int:
    """How often a list is repeated: a few times, or until it has megabytes."""
    return max(1, min(draw.choice((20, 10**6)), GROWN // len(json.dumps(values))))


def parquet_changed(data: bytes, draw: Random) -> bytes:
    """A part whose columns have other types, empty or other values, or that claims and holds many rows."""
    import pyarrow.parquet as pq

    sink: Any = io.BytesIO()
    pq.write_table(_table_changed(pq.read_table(io.BytesIO(data)), draw), sink, compression="zstd")
    return sink.getvalue()


def arrow_changed(data: bytes, draw: Random) -> bytes:
    """An Arrow file (Feather) with other columns, values, rows or metadata."""
    import pyarrow.feather as feather

    sink: Any = io.BytesIO()
    table = feather.read_table(io.BytesIO(data))
    table.validate(full=True)  # an earlier change may have left offsets that pyarrow follows, and ends the process
    feather.write_feather(_table_changed(table, draw), sink, compression="zstd")
    return sink.getvalue()


def _table_changed(table: Any, draw: Random) -> Any:
    """A table with another column, value, type, metadata, or other rows."""
    import pyarrow as pa

    at = draw.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    kind = draw.randrange(8)
    if kind == 0:
        table = table.drop_columns([name])
    elif kind == 1:
        table = table.set_column(at, name, pa.nulls(len(table), column.type))
    elif kind == 2:
        table = table.set_column(at, name, pa.array([str(each) for each in column.to_pylist()]))
    elif kind == 3:
        table = _values_changed(table, at, draw)
    elif kind == 4:
        table = table.append_column(draw.choice(("extra", name)), column)
    elif kind == 5:
        words = draw.choice(({}, {b"recsmith.schema": b"recsmith/\x1b[2J/9"}, {b"recsmith.schema": b"\xff"}))
        table = table.replace_schema_metadata(words)
    elif kind == 6:
        table = pa.concat_tables(
            [table] * draw.choice((2, 2**28 // table.nbytes))
        ).combine_chunks()  # small once packed
    else:
        table = table.take(pa.array([draw.randrange(len(table)) for _ in range(len(table))]))
    return table


def _values_changed(table: Any, at: int, draw: Random) -> Any:
    """A column in which one row holds a nasty value, if its type takes one."""
    import pyarrow as pa

    column = table.column(at)
    values = column.to_pylist()
    row = draw.randrange(len(values))
    for nasty in draw.sample(NASTY, len(NASTY)):
        if nasty is None and pa.types.is_map(column.type):
            continue  # pyarrow makes such a map, and ends the process as soon as somebody looks at it
        odd = [nasty] * len(values[row]) if isinstance(values[row], list) else nasty
        try:
            changed = pa.array([*values[:row], odd, *values[row + 1 :]], column.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
        return table.set_column(at, table.field(at), changed)
    return table


def tensors_changed(data: bytes, draw: Random) -> bytes:
    """A safetensors file with another header: its card, names, types, shapes and offsets."""
    (size,) = struct.unpack("<Q", data[:8])
    raw = json.loads(data[8 : 8 + size])
    metadata = raw["__metadata__"]
    if draw.random() < 0.5 and isinstance(metadata["card"], str):
        metadata["card"] = json_changed(metadata["card"].encode(), draw).decode("utf-8", "replace")
        header = json.dumps(raw).encode()
    else:
        header = json_changed(json.dumps(raw).encode(), draw)
    length = draw.choice((len(header), len(header), len(header), 2**40, size))
    return struct.pack("<Q", length) + header + data[8 + size :]


def header_changed(data: bytes, draw: Random) -> bytes:
    """A safetensors file without a card whose header has other names, types, shapes and offsets."""
    (size,) = struct.unpack("<Q", data[:8])
    header = json_changed(data[8 : 8 + size], draw)
    return struct.pack("<Q", draw.choice((len(header), len(header), 2**40, size))) + header + data[8 + size :]


def arrays_changed(data: bytes, draw: Random) -> bytes:
    """An .npz file in which one array has other values, another type or shape, another name, or is lost."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    name = draw.choice(sorted(arrays))
    array, kind = arrays[name], draw.randrange(6)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[draw.choice(("other", *arrays))] = array
    elif kind == 2:
        arrays[name] = array.astype(draw.choice(("float64", "U8", "bool", "uint8")))
    elif kind == 3:
        arrays[name] = array.reshape(-1, *[1] * draw.choice((0, 1, 3)))[draw.choice((0, 1)) :]
    elif array.size:
        flat, at = array.reshape(-1).copy(), draw.randrange(array.size)
        flat[at] = np.array([draw.choice((-1, 0, 1, 2**31, 2**62, -(2**63), 10**6))], np.int64).astype(array.dtype)[0]
        arrays[name] = flat.reshape(array.shape)  # of narrow types the low bits of the number
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # pyright: ignore[reportArgumentType]
    return sink.getvalue()


def events_lost(data: bytes, draw: Random) -> bytes:
    """A trace that lacks some events or fields of them, or has them elsewhere in time."""
    raw = json.loads(data)
    events: list[Any] = raw["traceEvents"]
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        at = draw.randrange(len(events))
        event, kind = events[at], draw.randrange(4)
        if kind == 0:
            del events[at]
        elif kind == 1:
            event.pop(draw.choice(sorted(event)))
        elif kind == 2:
            event["ts"] += draw.choice((-1e6, -10.0, 10.0, 5e3, 1e6))
        else:
            event["dur"] = draw.choice((0, 1e-3, 1e3, 1e7))
    return json.dumps(raw).encode()
