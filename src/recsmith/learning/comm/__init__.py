"""Exchanges in the form of an all-to-all model's input: a block for each number of ranks, and where they were measured.

Legend: N exchanges of a block, W ranks.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Bools, Floats, Ints, noun
from recsmith.costs.neural_comm import AllToAlls
from recsmith.errors import UsageError
from recsmith.hardware import load_links
from recsmith.learning.preparation import SEEDS_APART, repeat_differences, split
from recsmith.measuring.about import load_about
from recsmith.measuring.folder import read_columns

LEAST_EXCHANGES = 50  # fewest exchanges for a training: fewer leave less than five to judge the model
READ_COLUMNS = ("number", "backend", "oversubscribed", "device", "versions", "direction", "sent_bytes",
                "received_bytes", "skew_s", "median_s", "status")  # fmt: skip


@noun
class CommOrigin:
    """Where exchanges were measured. per_host: most ranks of a host; None if all ranks were on one machine."""

    hardware: str
    backend: str
    device: str
    per_host: int | None


@dataclass(frozen=True)
class Exchanges:
    """Exchanges of one number of ranks: their load, seconds (N, W), and case (N,), a number shared by repeats."""

    load: AllToAlls
    seconds: Floats
    case: Ints

    def __len__(self) -> int:
        """Number of exchanges, N."""
        return len(self.case)

    @property
    def ranks(self) -> int:
        """Number of ranks, W."""
        return self.load.ranks

    @property
    def simultaneous(self) -> Bools:
        """Exchanges that all ranks start at once (N,)."""
        return self.load.wait_s.max(axis=1) == 0

    def take(self, chosen: Bools | Ints) -> "Exchanges":
        """Some of the exchanges, by index or by a mask (N,)."""
        load = self.load
        some = {name: getattr(load, name)[chosen] for name in ("sent", "received", "skew_s", "forward")}
        return Exchanges(replace(load, **some), self.seconds[chosen], self.case[chosen])


def read_exchanges(folders: Sequence[Path]) -> tuple[list[Exchanges], int, CommOrigin, str]:
    """(a block for each number of ranks, fewest first; number left out; where they were measured; versions).

    Exchanges of more ranks than cores are left out: they measured the scheduler.

    Raises:
        UsageError: there are too few exchanges, several kinds of hardware, or folders with something else.
        CorruptFile, MissingExtra: as for read_columns.
    """
    by_ranks: dict[int, list[Exchanges]] = {}
    origins, versions, rows_read = set[CommOrigin](), set[str](), 0
    for folder in folders:
        about = load_about(folder)
        if about.kind != "comm":
            raise UsageError(f"'{folder}' holds {about}; exchanges are of `recsmith measure comm`")
        columns = read_columns(folder, READ_COLUMNS)
        rows_read += len(columns["number"])
        usable = [
            i for i, status in enumerate(columns["status"]) if status == "ok" and not columns["oversubscribed"][i]
        ]
        rows = {name: [values[i] for i in usable] for name, values in columns.items()}
        here = {_origin(about.hardware, *pair) for pair in zip(rows["backend"], rows["device"], strict=True)}
        origins |= here
        versions |= set(rows["versions"])
        for origin in here:
            by_ranks.setdefault(about.ranks, []).append(_block(rows, about.seed, origin.per_host))
    if len(origins) > 1:
        names = ", ".join(sorted(f"{each.hardware}, {each.backend} ({each.device})" for each in origins))
        raise UsageError(f"the exchanges are of several devices: {names}; train a model for each")
    blocks = [_joined(by_ranks[ranks]) for ranks in sorted(by_ranks)]
    used = sum(map(len, blocks))
    if used < LEAST_EXCHANGES:
        raise UsageError(
            f"{used} of {rows_read} exchanges are usable (those of more ranks than cores are not); training takes at "
            f"least {LEAST_EXCHANGES}: measure more"
        )
    return blocks, rows_read - used, origins.pop(), "; ".join(sorted(versions))


def _origin(hardware: str, backend: str, device: str) -> CommOrigin:
    """The origin of a row. Device names of NCCL have a count ('8 x NVIDIA H100'), which is left out."""
    count, _, name = device.partition(" x ")
    per_host = load_links(hardware).per_host if backend == "simulated" else None
    return CommOrigin(hardware=hardware, backend=backend, device=name if count.isdigit() else device, per_host=per_host)


def _block(rows: dict[str, list[Any]], seed: int, per_host: int | None) -> Exchanges:
    sent, received, skew, seconds = (
        np.array(rows[name], dtype=np.float64) for name in ("sent_bytes", "received_bytes", "skew_s", "median_s")
    )
    forward = np.array(rows["direction"]) == "forward"
    case = np.array(rows["number"], dtype=np.int64) + seed * SEEDS_APART
    return Exchanges(AllToAlls(sent, received, skew, forward, per_host), seconds, case)


def _joined(parts: list[Exchanges]) -> Exchanges:
    def all_of(name: str) -> Any:
        return np.concatenate([getattr(part.load, name) for part in parts])

    load = replace(parts[0].load, **{name: all_of(name) for name in ("sent", "received", "skew_s", "forward")})
    return Exchanges(
        load, np.concatenate([part.seconds for part in parts]), np.concatenate([part.case for part in parts])
    )


def split_blocks(blocks: Sequence[Exchanges], seed: int) -> tuple[list[Exchanges], list[Exchanges], list[Exchanges]]:
    """(train, validation, test) of each block: by number, so that no case, of any number of ranks, is in two parts."""
    chosen = split(np.concatenate([block.case for block in blocks]), seed)
    ends = np.cumsum([len(block) for block in blocks])[:-1]
    parts = [[block.take(some) for block, some in zip(blocks, np.split(part, ends), strict=True)] for part in chosen]
    return parts[0], parts[1], parts[2]


def comm_noise(blocks: Sequence[Exchanges]) -> Floats:
    """|second / first - 1| of every rank of every exchange that was measured twice."""
    return np.concatenate([repeat_differences(block.case, block.seconds).ravel() for block in blocks])


def digest(blocks: Sequence[Exchanges]) -> str:
    """SHA-256 of all numbers."""
    found = hashlib.sha256()
    for block in blocks:
        load = block.load
        for values in (load.sent, load.received, load.skew_s, load.forward, block.seconds, block.case):
            found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()
