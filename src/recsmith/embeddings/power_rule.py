"""Widths of mixed dimension embeddings by the power rule: a block's width falls with a power of its popularity.

Ginart et al., Mixed Dimension Embeddings with Application to Memory-Efficient Recommendation Systems, ISIT 2021
(arXiv 1909.11810); constants as in the authors' solver of facebookresearch/dlrm.

N blocks
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Ints
from recsmith.errors import check_rules


def power_rule(
    rows: Sequence[int], *, temperature: float, base_dim: int | None = None, budget: float | None = None,
    queries: Sequence[float] | None = None,
) -> Ints:  # fmt: skip
    """Widths (N,) of blocks of rows: lambda * (queries / rows) ** temperature, and 1 at least.

    rows: of each block. queries: mean ids of a sample that fall into each block; 1 each without it. temperature: 0
    gives all the same width, 1 widths in proportion to popularity. base_dim: width of the block whose rows are asked
    for most, which sets lambda; budget: instead, the parameters that unrounded widths add up to.

    Raises:
        UsageError: neither or both of base_dim and budget, or a count that is not positive.
    """
    count = np.asarray(rows, dtype=np.float64)
    asked = np.ones(len(count)) if queries is None else np.asarray(queries, dtype=np.float64)
    check_rules(
        None if (base_dim is None) != (budget is None) else "give base_dim or budget, one of them",
        None if len(count) and (count > 0).all() and (asked > 0).all() else "blocks have rows and queries above 0",
        None if temperature >= 0 else f"temperature is {temperature}; 0 or more",
    )
    rarity = count / asked
    if base_dim is not None:
        scale = base_dim * rarity.min() ** temperature
    else:
        scale = float(budget or 0) / float((count * rarity**-temperature).sum())
    return np.rint(np.maximum(1.0, scale * rarity**-temperature)).astype(np.int64)


def powers_of_two(widths: Ints) -> Ints:
    """The nearest power of two of each width (N,), on a scale of logarithms."""
    return (2 ** np.rint(np.log2(widths))).astype(np.int64)


def mixed_parameters(rows: Sequence[int], widths: Ints) -> int:
    """Parameters of blocks with these widths, projections to the widest included."""
    base = int(widths.max())
    return int(sum(n * d + (d * base if d < base else 0) for n, d in zip(rows, widths.tolist(), strict=True)))
