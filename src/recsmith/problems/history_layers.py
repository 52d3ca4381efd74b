"""What layers over histories keep of a batch on a device, counted from the code of MLPerf's HSTU.

That code (chriscai-amd/training, branch jiawei/dlrmv4_opt at ad52cb1, recommendation/generative_recommenders:
modules/stu.py, modules/preprocessors.py and ops/triton) computes in bf16, holds no matrix of pairs of positions, and
computes norms, products and what the output projection reads again in the backward pass. Nothing was fitted. Published
memory of its jobs judges the sum (docs/sequences.md, benchmarks/hstu_formulas.py).

P positions of a device; numbers are bf16 and of one position.
"""

from itertools import chain

from recsmith._types import noun
from recsmith.workloads import Workload

BF16_BYTES, FLOAT = 2, 4
ENCODED = 3  # times the columns of each sequence: itself, hidden layers of half its width, and what is normalised


@noun
class HistoryLayers:
    """Sizes of the layers, by default of MLPerf's. blocks: of attention; keys, values: columns of all heads together.

    streams: what the output projection reads side by side, of as many columns as values. positions, sequences: of
    `Histories`. None: as the tables have it.
    """

    blocks: int = 3
    keys: int | None = None
    values: int | None = None
    streams: int = 3
    positions: float | None = None
    sequences: int | None = None


@noun
class Histories:
    """What a sample has. positions: ids of its longest feature; sequences: features of that length; width: columns."""

    positions: float
    sequences: int
    width: int


def histories_of(workload: Workload, layers: HistoryLayers) -> Histories | None:
    """The histories that layers read of a workload; None where no row is one of a sequence of several."""
    rows = [table for table in workload.tables if not table.pooled]
    lengths = [each.pooling_factor for each in chain.from_iterable(table.features for table in rows)]
    longest = max(lengths, default=0.0)
    if longest <= 1:
        return None
    return Histories(
        positions=layers.positions or longest, sequences=layers.sequences or lengths.count(longest),
        width=max(table.embedding_dim for table in rows),
    )  # fmt: skip


def history_weights(found: Histories, layers: HistoryLayers) -> int:
    """Numbers of the blocks' weights."""
    keys, values = layers.keys or found.width, layers.values or found.width
    return layers.blocks * found.width * (2 * (keys + values) + layers.streams * values)


def history_activations(found: Histories, layers: HistoryLayers, samples: int) -> int:
    """Bytes at the fullest moment, when the backward pass of the last block begins.

    A block keeps its input, its gate and what attention gave. Its backward pass has the products and their gradients,
    the normed input and its gradient, gradients of input and output, and has let go of gate and attention.
    """
    width, keys, values = found.width, layers.keys or found.width, layers.values or found.width
    kept = ENCODED * found.sequences * width + layers.blocks * (width + 2 * values)
    backward = 4 * width + 4 * (keys + values)
    return int(BF16_BYTES * samples * found.positions * (kept + backward))
