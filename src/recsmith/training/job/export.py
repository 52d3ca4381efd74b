"""The trained model without its sharding: weights.safetensors and card.json, written by all ranks at once.

No rank ever holds a whole table: rank 0 creates the file at its full size, and every rank writes its shards in place.
Format: https://github.com/huggingface/safetensors (8 bytes length, JSON header, tensors one after the other).
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open

from recsmith.adapters.chunk_bytes import BLOCK
from recsmith.data import DataSchema
from recsmith.data.columns.rows import keep_vocabularies
from recsmith.errors import CorruptFile, RecSmithError
from recsmith.files import Raw, check_is_file, read_json
from recsmith.files.writable import put_in_place, whole_folder
from recsmith.training.job.card import (
    CARD,
    BlockDigest,
    block_digests,
    check_weights,
    described,
    fingerprint_of,
    keep_files,
    write_card,
)
from recsmith.training.job.links import hosts_here
from recsmith.training.job.sharded import ShardedJob
from recsmith.training.run import Run
from recsmith.training.seams import systems
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.tables.plain import exported_names

WEIGHTS = "weights.safetensors"
TYPE_NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.float64: "F64",
    torch.int32: "I32", torch.uint8: "U8",
}  # fmt: skip
RAW = {torch.float32: "<f4", torch.float16: "<f2", torch.bfloat16: "<u2", torch.int64: "<i8", torch.float64: "<f8",
       torch.int32: "<i4", torch.uint8: "|u1"}  # fmt: skip


def export(job: ShardedJob, run: Run, schema: DataSchema, folder: Path, card: Raw) -> None:
    """Write a job's model into a folder that all ranks can access, on every rank; RecSmithError if the disk is full."""
    job.replicas.meet()
    job.rows.flush()
    whole = job.rows.whole()
    names = exported_names(job.model, whole)
    partial, raw = folder.with_name(folder.name + ".partial"), Raw()
    if dist.get_rank() == 0:
        try:
            partial.mkdir(parents=True, exist_ok=True)
            make_tensor_file(partial / WEIGHTS, {names[name]: each for name, each in whole.items()})
        except OSError as error:
            raise RecSmithError(
                f"the trained model cannot be written to '{partial}': {error.strerror or error}; make room, and "
                "start the same command again"
            ) from None
        model = keep_files(run.model, partial)
        raw = {**described(model, keep_vocabularies(schema, partial), run.seed), **card}
        exported = [(system.name, system.exported(run, job.model)) for system in systems()]
        raw |= {key: value for name, each in exported if not name for key, value in each.items()}
        raw |= {"systems": others} if (others := {name: each for name, each in exported if name and each}) else {}
    dist.barrier()
    for system in systems():
        system.write_files(run, job, partial)
    arrays = arrays_of(partial / WEIGHTS)
    for name, corner, tensor, everywhere in job.rows.shards():
        if not everywhere or dist.get_rank() == 0:
            arrays[names[name]][_window(corner, tensor)] = as_array(tensor.detach().cpu())
    if hosts_here(dist.get_world_size()) > 1:  # rank 0 reads what other hosts have written to the shared disk
        for array in (each for each in arrays.values() if isinstance(each, np.memmap)):
            array.flush()
    del arrays
    dist.barrier()
    blocks = _blocks_together(partial)
    if dist.get_rank() == 0:
        write_card(partial, raw, blocks)
        put_in_place(partial, folder)
    dist.barrier()


def export_changed(model: Path, folder: Path, changed: Mapping[str, torch.Tensor], card: Raw) -> None:
    """Copy an exported model into another folder with some tensors and card lines replaced, whole or not at all.

    Raises:
        RecSmithError: the disk refuses it.
    """
    with whole_folder(folder) as partial:
        shutil.copytree(model, partial, dirs_exist_ok=True)
        arrays = arrays_of(partial / WEIGHTS)
        for name, tensor in changed.items():
            arrays[name][_window((0,) * tensor.dim(), tensor)] = as_array(tensor.cpu())
        del arrays
        raw = read_json(str(partial / CARD))
        write_card(partial, {**cast(Raw, raw), **card})


def check_together(model: Path) -> None:
    """CorruptFile on every rank if the weights of an exported model do not match its card; each rank reads a part."""
    check_weights(model, fingerprint_of(_blocks_together(model)))


def _blocks_together(model: Path) -> list[BlockDigest]:
    """Digests of all blocks of the weights in a folder, each computed by one rank."""
    found: list[list[BlockDigest]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(found, block_digests(model, dist.get_rank(), dist.get_world_size()))
    return [each for part in found for each in part]


def load_into(job: ShardedJob, file: Path) -> None:
    """Read exported weights into this rank's shards; CorruptFile if they are of another model, or damaged."""
    whole = job.rows.whole()
    names = exported_names(job.model, whole)
    with torch.no_grad(), opened_weights(file, {names[name]: each for name, each in whole.items()}) as opened:
        for parameter, corner, tensor, _ in job.rows.shards():
            name = names[parameter]
            if not corner:
                tensor.copy_(opened.get_tensor(name))
                continue
            there, (first, *others) = opened.get_slice(name), _window(corner, tensor)
            for rows in tensor.split(max(1, BLOCK // max(1, tensor[:1].nbytes))):  # a whole shard may not fit
                rows.copy_(there[(slice(first.start, first.start + len(rows)), *others)])
                first = slice(first.start + len(rows), first.stop)
    job.rows.flush()


@contextmanager
def opened_weights(file: Path, expected: Mapping[str, WholeTensor]) -> Iterator[Any]:
    """An exported model's weights file, opened; safetensors reads tensors on demand.

    Raises:
        CorruptFile: the file is damaged, or holds other tensors than expected.
    """
    with opened_file(file) as opened:
        there = tensors_in(opened)
        odd = min((name for name in {*there, *expected} if there.get(name) != expected.get(name)), default=None)
        if odd is not None:
            raise CorruptFile(
                f"'{file}' is of another model: '{odd}' is {_said(there.get(odd))} there, and its card makes it "
                f"{_said(expected.get(odd))}; export the model again"
            )
        yield opened


@contextmanager
def opened_file(file: Path, cure: str = "export the model again") -> Iterator[Any]:
    """A safetensors file, opened; CorruptFile if it is damaged."""
    check_is_file(file)  # opening a pipe would block
    try:
        with safe_open(file, framework="pt") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        raise CorruptFile(f"'{file}' is not a sound safetensors file: {error}; {cure}") from None


def tensors_in(opened: Any) -> dict[str, WholeTensor]:
    """Element types and shapes of all tensors in an opened file."""
    return {name: WholeTensor(*_kind(opened.get_slice(name))) for name in opened.keys()}  # noqa: SIM118


def _kind(entry: Any) -> tuple[torch.dtype, tuple[int, ...]]:
    kinds = {name: kind for kind, name in TYPE_NAMES.items()}
    return kinds.get(entry.get_dtype(), torch.bool), tuple(entry.get_shape())  # other types are never exported


def _said(whole: WholeTensor | None) -> str:
    return "missing" if whole is None else f"{whole.shape} of {str(whole.dtype).removeprefix('torch.')}"


def arrays_of(file: Path, mode: Literal["r", "r+"] = "r+") -> dict[str, Any]:
    """Memory-mapped arrays of the tensors in one of our safetensors files, writable by default; bf16 as its 16 bits."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
    types = {name: RAW[kind] for kind, name in TYPE_NAMES.items()}
    made: dict[str, Any] = {}
    for name, entry in header.items():
        shape, start = tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
        if 0 in shape:  # nothing to map
            made[name] = np.empty(shape, types[entry["dtype"]])
            continue
        made[name] = np.memmap(file, types[entry["dtype"]], mode, offset=start, shape=shape or (1,))
    return made


def make_tensor_file(file: Path, weights: dict[str, WholeTensor]) -> None:
    """Write the header and allocate space for every tensor: a full disk could not be reported through mapped memory."""
    header: Raw = {}
    end = 0
    for name in sorted(weights):
        kind, shape = weights[name]
        begin, end = end, end + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        header[name] = {"dtype": TYPE_NAMES[kind], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        opened.flush()
        os.posix_fallocate(opened.fileno(), 0, 8 + len(text) + end)


def _window(corner: tuple[int, ...], tensor: torch.Tensor) -> tuple[slice, ...]:
    """The slices of a shard in its whole tensor; for a scalar, everything."""
    return tuple(slice(first, first + size) for first, size in zip(corner, tensor.shape, strict=True)) or (slice(None),)


def as_array(tensor: torch.Tensor) -> Any:
    """The tensor as an array; bf16, which NumPy lacks, as its 16 bits."""
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
