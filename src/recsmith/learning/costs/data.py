"""Samples as a cost model sees them, and which of them train, choose and judge it.

Legend: N groups (samples), P pieces (tables of all of them), b figures of work, x inputs.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recsmith._types import Bools, Floats, Ints, noun
from recsmith.costs.neural.inputs import DATA_TYPES, OPTIMIZERS, PieceWork, inputs_of, work_of
from recsmith.errors import UsageError
from recsmith.measuring.compute.cases import SLOWER
from recsmith.measuring.about import load_about
from recsmith.measuring.compute.steady_samples import Samples, read_samples
from recsmith.measuring.rows import read_columns
from recsmith.sharding.memory import OUTPUT_BYTES

MAPPED_BYTES = 2**25  # of outputs on a CPU: larger ones glibc mapped anew each time when the shipped samples were taken
LEAST_SAMPLES = 50
PARTS = (0.8, 0.1)  # of the cases: to train, to choose the best epoch; the rest judges


@noun
class Origin:
    """Where samples were measured."""

    hardware: str
    device: str
    versions: str


@dataclass(frozen=True)
class Groups:
    """Samples: figures of work (P, b) and inputs (P, x) of pieces, and seconds (N, 2), forward and backward.

    start (N + 1,): pieces of each sample. case (N,): samples of one case are measurements of the same thing. zipf, dim,
    rows, ids, bags, unique (P,), batch, optimizer, data_type (N,): as in the measurements.
    """

    start: Ints
    work: Floats
    inputs: Floats
    seconds: Floats
    case: Ints
    batch: Ints
    optimizer: Ints
    data_type: Ints
    rows: Floats
    dim: Floats
    ids: Floats
    unique: Floats
    zipf: Floats

    def __len__(self) -> int:
        """N."""
        return len(self.case)

    @property
    def owner(self) -> Ints:
        """Which sample each piece is of (P,)."""
        return np.repeat(np.arange(len(self)), self.tables)

    @property
    def tables(self) -> Ints:
        """Pieces of each sample (N,)."""
        return np.diff(self.start)

    @property
    def total(self) -> Floats:
        """Seconds of each sample, forward and backward (N,)."""
        return self.seconds.sum(axis=1)

    @property
    def bags(self) -> Floats:
        """Of each piece (P,)."""
        return self.batch[self.owner].astype(np.float64)

    @property
    def outputs(self) -> Floats:
        """Elements that each sample returns (N,)."""
        return self.summed(self.bags * self.dim)

    def summed(self, values: Floats) -> Floats:
        """Sums over the pieces of each sample (N, ...)."""
        return np.add.reduceat(values, self.start[:-1], axis=0)

    def take(self, kept: Bools) -> "Groups":
        """Some of the samples."""
        pieces = kept[self.owner]
        some = {name: getattr(self, name)[kept if name in OF_SAMPLE else pieces]
                for name in self.__dataclass_fields__ if name != "start"}  # fmt: skip
        return replace(self, start=np.concatenate([[0], np.cumsum(self.tables[kept])]), **some)

    @property
    def digest(self) -> str:
        """SHA-256 of all numbers."""
        found = hashlib.sha256()
        for name in self.__dataclass_fields__:
            found.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        return found.hexdigest()


OF_SAMPLE = ("seconds", "case", "batch", "optimizer", "data_type")


def groups_of(samples: Samples, seed: int = 0) -> Groups:
    """Samples of a seed as groups."""
    owner, batch = samples.owner, samples.batch_size
    optimizer = np.array([OPTIMIZERS.index(str(word)) for word in samples.optimizer], dtype=np.int64)
    data_type = np.array([DATA_TYPES.index(str(word)) for word in samples.data_type], dtype=np.int64)
    rows, dim, ids, unique = (
        each.astype(np.float64) for each in (samples.rows, samples.dim, samples.lookups, samples.unique_rows)
    )
    piece = PieceWork(ids, batch[owner].astype(np.float64), unique, rows, dim, optimizer[owner], data_type[owner])
    return Groups(
        start=samples.start, work=work_of(piece), inputs=inputs_of(piece), case=samples.number + seed * 2**32,
        seconds=np.stack([samples.forward_s, samples.backward_s], axis=1), batch=batch, optimizer=optimizer,
        data_type=data_type, rows=rows, dim=dim, ids=ids, unique=unique, zipf=samples.zipf,
    )  # fmt: skip


def read_groups(folders: Sequence[Path]) -> tuple[Groups, int, Origin]:
    """(samples of folders, how many were left out, where they were measured).

    Left out are those of `mapped`, on a CPU. What a disturbed machine measured is not steady (measuring/compute/samples.py).

    Raises:
        UsageError: there are too few, or folders of several devices.
        CorruptFile, MissingExtra: as read_samples says.
    """
    found, origins, all_ = list[Groups](), set[tuple[str, str, str]](), 0
    for folder in folders:
        samples, about = read_samples(folder), load_about(folder)
        all_ += len(samples)
        columns = read_columns(folder, ["device", "versions"])
        origins |= {(about.hardware, *pair) for pair in zip(columns["device"], columns["versions"], strict=True)}
        groups = groups_of(samples, about.seed)
        found.append(groups.take(~mapped(groups)) if about.hardware == "cpu" else groups)
    if len({(hardware, device) for hardware, device, _ in origins}) > 1:
        names = ", ".join(sorted({f"{hardware} ({device})" for hardware, device, _ in origins}))
        raise UsageError(f"the samples are of several devices: {names}; train a cost model for each")
    groups = _joined(found)
    if len(groups) < LEAST_SAMPLES:
        raise UsageError(
            f"{len(groups)} of {all_} steady samples are usable; training takes at least {LEAST_SAMPLES}: measure more"
        )
    hardware, device, _ = next(iter(origins))
    versions = "; ".join(sorted({each for *_, each in origins}))
    return groups, all_ - len(groups), Origin(hardware=hardware, device=device, versions=versions)


def mapped(groups: Groups) -> Bools:
    """Samples (N,) whose outputs malloc may have taken from the system each time: up to 12 ms that no kernel spends."""
    return groups.outputs * OUTPUT_BYTES > MAPPED_BYTES


def split(case: Ints, seed: int) -> tuple[Bools, Bools, Bools]:
    """(train, validation, test), each (N,): by case, so that no measurement of a case stands in two of them."""
    cases = np.unique(case)
    draw = np.random.default_rng(seed).permutation(len(cases)) / len(cases)
    place = draw[np.searchsorted(cases, case)]
    train = place < PARTS[0]
    return train, ~train & (place < sum(PARTS)), place >= sum(PARTS)


def noise_floor(groups: Groups) -> Floats:
    """|second / first - 1| of every case that was measured twice."""
    order = np.argsort(groups.case, kind="stable")
    twice = np.flatnonzero(np.diff(groups.case[order]) == 0)
    total = groups.total[order]
    return np.abs(total[twice + 1] / total[twice] - 1)


def work_of_case(groups: Groups) -> Floats:
    """Rows of 64 columns, times what optimizer and data type take longer (N,): as measuring/compute/cases.py counts work."""
    rows: Floats = groups.summed((groups.ids + groups.bags) * (1 + groups.dim / 64) / 2)
    by_optimizer, by_type = (
        np.array([SLOWER.get(word, 1.0) for word in words], dtype=np.float64) for words in (OPTIMIZERS, DATA_TYPES)
    )
    return rows * by_optimizer[groups.optimizer] * by_type[groups.data_type]


def _joined(parts: Iterable[Groups]) -> Groups:
    parts = list(parts)
    fields = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Groups.__dataclass_fields__
              if name != "start"}  # fmt: skip
    return Groups(start=np.concatenate([[0], np.cumsum(np.concatenate([part.tables for part in parts]))]), **fields)
