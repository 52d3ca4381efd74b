"""Steady samples in the form of a cost model's input: groups of pieces with figures of work, inputs, and seconds.

Legend: N groups (samples), P pieces (tables of all groups together), b figures of work, x inputs.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recsmith._random import mixed, salt
from recsmith._types import Bools, Floats, Ints, noun
from recsmith.costs.neural.inputs import DATA_TYPES, FIRST_INPUTS, OPTIMIZERS, PieceWork, inputs_of, work_of
from recsmith.errors import UsageError
from recsmith.learning.preparation import SEEDS_APART, repeat_differences
from recsmith.measuring.about import load_about
from recsmith.measuring.cases import SLOWER, work_rows
from recsmith.measuring.folder import read_columns
from recsmith.measuring.samples import Samples, read_samples
from recsmith.sharding.memory import OUTPUT_BYTES

MAPPED_BYTES = 2**25  # bytes of outputs on a CPU: glibc mapped larger ones each time when shipped samples were measured
LEAST_SAMPLES = 50  # fewest samples for a training: fewer leave less than five to judge the model


@noun
class Origin:
    """Where samples were measured."""

    hardware: str
    device: str
    versions: str


@dataclass(frozen=True)
class Groups:
    """Fusion groups: figures of work (P, b) and inputs (P, x) of pieces, and seconds (N, 2), forward and backward.

    start (N + 1,): pieces start[i] to start[i + 1] are those of group i. case (N,): groups of one number are
    measurements of the same case. zipf, dim, rows, ids, bags, unique (P,), batch, optimizer, data_type, blocks (N,): as
    in the measurements; optimizers and data types are indices into the lists of costs/neural/inputs.py. blocks: the
    pieces of a group are row blocks, each one of this many of a larger table, for which the exponent zipf holds.
    """

    start: Ints
    work: Floats
    inputs: Floats
    seconds: Floats
    case: Ints
    batch: Ints
    optimizer: Ints
    data_type: Ints
    blocks: Ints
    rows: Floats
    dim: Floats
    ids: Floats
    unique: Floats
    zipf: Floats

    def __len__(self) -> int:
        """Number of groups, N."""
        return len(self.case)

    @property
    def owner(self) -> Ints:
        """Index of the group of each piece (P,)."""
        return np.repeat(np.arange(len(self)), self.tables)

    @property
    def tables(self) -> Ints:
        """Number of pieces of each group (N,)."""
        return np.diff(self.start)

    @property
    def total(self) -> Floats:
        """Seconds of each group, forward and backward together (N,)."""
        return self.seconds.sum(axis=1)

    @property
    def bags(self) -> Floats:
        """Bags of each piece (P,)."""
        return self.batch[self.owner].astype(np.float64)

    @property
    def outputs(self) -> Floats:
        """Elements that each group returns (N,)."""
        return self.summed(self.bags * self.dim)

    def summed(self, values: Floats) -> Floats:
        """Sums over the pieces of each group (N, ...), of values (P, ...)."""
        return np.add.reduceat(values, self.start[:-1], axis=0)

    def take(self, chosen: Bools) -> "Groups":
        """The groups for which chosen (N,) is true."""
        pieces = chosen[self.owner]
        some = {name: getattr(self, name)[chosen if name in GROUP_FIELDS else pieces]
                for name in self.__dataclass_fields__ if name != "start"}  # fmt: skip
        return replace(self, start=np.concatenate([[0], np.cumsum(self.tables[chosen])]), **some)

    @property
    def digest(self) -> str:
        """SHA-256 of all arrays; samples without blocks and Adam keep the digest of versions that had neither."""
        found = hashlib.sha256()
        for name in self.__dataclass_fields__:
            if name != "blocks" or (self.blocks > 1).any():
                array = self.inputs[:, :FIRST_INPUTS] if name == "inputs" else getattr(self, name)
                found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


GROUP_FIELDS = ("seconds", "case", "batch", "optimizer", "data_type", "blocks")


def groups_of(samples: Samples, seed: int = 0, scale: str = "", planned: str = "") -> Groups:
    """Steady samples as groups. seed, scale, planned: those of the folder's cases (measuring/about.py).

    Groups have the same case number only if they are samples of one case, also across folders of several seeds, scales
    and models.
    """
    owner, batch = samples.owner, samples.batch_size
    kind = np.uint64(salt("cases", scale, planned))
    case = mixed((samples.number + seed * SEEDS_APART).astype(np.uint64) + kind).astype(np.int64)
    optimizer = np.array([OPTIMIZERS.index(str(name)) for name in samples.optimizer], dtype=np.int64)
    data_type = np.array([DATA_TYPES.index(str(name)) for name in samples.data_type], dtype=np.int64)
    rows, dim, ids, unique = (
        each.astype(np.float64) for each in (samples.rows, samples.dim, samples.lookups, samples.unique_rows)
    )
    piece = PieceWork(ids, batch[owner].astype(np.float64), unique, rows, dim, optimizer[owner], data_type[owner])
    return Groups(
        start=samples.start, work=work_of(piece), inputs=inputs_of(piece), case=case,
        seconds=np.stack([samples.forward_s, samples.backward_s], axis=1), batch=batch, optimizer=optimizer,
        data_type=data_type, blocks=samples.blocks, rows=rows, dim=dim, ids=ids, unique=unique, zipf=samples.zipf,
    )  # fmt: skip


def read_groups(folders: Sequence[Path]) -> tuple[Groups, int, Origin]:
    """(groups of folders, number of samples that were left out, where they were measured).

    On a CPU, the samples of `mapped` are left out. Samples of a disturbed machine are not steady, and are not read
    (measuring/samples.py).

    Raises:
        UsageError: there are too few samples, or the folders are of several devices.
        CorruptFile, MissingExtra: as for read_samples.
    """
    parts, origins, samples_read = list[Groups](), set[tuple[str, str, str]](), 0
    for folder in folders:
        samples, about = read_samples(folder), load_about(folder)
        samples_read += len(samples)
        columns = read_columns(folder, ["device", "versions"])
        origins |= {(about.hardware, *pair) for pair in zip(columns["device"], columns["versions"], strict=True)}
        groups = groups_of(samples, about.seed, about.scale, about.planned)
        parts.append(groups.take(~mapped(groups)) if about.hardware == "cpu" else groups)
    if len({(hardware, device) for hardware, device, _ in origins}) > 1:
        names = ", ".join(sorted({f"{hardware} ({device})" for hardware, device, _ in origins}))
        raise UsageError(f"the samples are of several devices: {names}; train a cost model for each")
    groups = _joined(parts)
    if len(groups) < LEAST_SAMPLES:
        raise UsageError(
            f"{len(groups)} of {samples_read} steady samples are usable; training takes at least {LEAST_SAMPLES}: "
            "measure more"
        )
    hardware, device, _ = next(iter(origins))
    versions = "; ".join(sorted({each for *_, each in origins}))
    return groups, samples_read - len(groups), Origin(hardware=hardware, device=device, versions=versions)


def mapped(groups: Groups) -> Bools:
    """Groups (N,) whose outputs malloc may have mapped in every iteration: up to 12 ms that no kernel spends."""
    return groups.outputs * OUTPUT_BYTES > MAPPED_BYTES


def noise_floor(groups: Groups) -> Floats:
    """|second / first - 1| of every case that was measured twice, forward and backward together."""
    return repeat_differences(groups.case, groups.total)


def work_of_case(groups: Groups) -> Floats:
    """The work of each group (N,), as for drawing cases: rows of 64 columns, times the factor of slower kernels."""
    rows: Floats = groups.summed(work_rows(groups.ids + groups.bags, groups.dim))
    by_optimizer, by_type = (
        np.array([SLOWER.get(name, 1.0) for name in words], dtype=np.float64) for words in (OPTIMIZERS, DATA_TYPES)
    )
    return rows * by_optimizer[groups.optimizer] * by_type[groups.data_type]


def _joined(parts: Iterable[Groups]) -> Groups:
    parts = list(parts)
    fields = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Groups.__dataclass_fields__
              if name != "start"}  # fmt: skip
    return Groups(start=np.concatenate([[0], np.cumsum(np.concatenate([part.tables for part in parts]))]), **fields)
