"""Memory that layers over histories take of a batch on a device, counted from the code of MLPerf's HSTU.

That code (chriscai-amd/training, branch jiawei/dlrmv4_opt at ad52cb1, recommendation/generative_recommenders:
modules/stu.py, modules/preprocessors.py and ops/triton) computes in bf16, stores no matrix of pairs of positions, and
recomputes norms, products and the input of the output projection in the backward pass. Nothing was fitted. The sum is
compared with the published memory of its jobs (docs/sequences.md, benchmarks/hstu_formulas.py).

P positions of a device; numbers are bf16 and per position.
"""

from itertools import chain

from recsmith._types import noun
from recsmith.workloads import Workload

BF16_BYTES, FLOAT = 2, 4
# times the columns of each sequence: the sequence, hidden layers of half its width, and the normalised input
ENCODED = 3


@noun
class HistoryLayers:
    """Sizes of the layers, by default MLPerf's. blocks: of attention; keys, values: columns of all heads together.

    streams: inputs of the output projection, each with as many columns as values.
    positions, sequences: as in `Histories`. None: derived from the tables.
    """

    blocks: int = 3
    keys: int | None = None
    values: int | None = None
    streams: int = 3
    positions: float | None = None
    sequences: int | None = None


@noun
class Histories:
    """The histories of a sample.

    positions: ids of its longest feature.
    sequences: features of that length.
    width: columns.
    """

    positions: float
    sequences: int
    width: int


def histories_of(workload: Workload, layers: HistoryLayers) -> Histories | None:
    """The histories of a workload that layers read; None if no feature of a sequence table has more than one id."""
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
    """The number of weights of all blocks."""
    keys, values = layers.keys or found.width, layers.values or found.width
    return layers.blocks * found.width * (2 * (keys + values) + layers.streams * values)


def history_activations(found: Histories, layers: HistoryLayers, samples: int) -> int:
    """Bytes at the peak, when the backward pass of the last block begins.

    A block keeps its input, its gate and the attention's output. Its backward pass holds the products and their
    gradients, the normed input and its gradient, and gradients of input and output; gate and attention output are freed
    by then.
    """
    width, keys, values = found.width, layers.keys or found.width, layers.values or found.width
    kept = ENCODED * found.sequences * width + layers.blocks * (width + 2 * values)
    backward = 4 * width + 4 * (keys + values)
    return int(BF16_BYTES * samples * found.positions * (kept + backward))
