"""How the columns of a table may be split.

Legend: a split is a tuple of (width, count) pairs, wide first, of at most two different widths.
"""

from functools import cache

from recsmith.sharding import WIDTH_STEP

Split = tuple[tuple[int, int], ...]

TORCHREC_MIN_PARTITION = 128  # MIN_CW_DIM of torchrec/distributed/planner/constants.py
KERNEL_BLOCKS = (128, 64, 32)  # widths at which FBGEMM's kernels change their thread layout
DENSE_COUNTS = 8  # every number of pieces up to this; beyond, four per doubling
MOST_ALIKE = 3  # pieces of one width beside which a fine split has one of another width
FINE_STEP = 8  # columns by which fine splits differ: a sector of memory in fp32


def torchrec_width(dim: int, min_partition: int | None = None) -> int:
    """The one column width that TorchRec's planner proposes: _find_base_dim in distributed/sharding_plan.py."""
    candidates = range(min_partition or TORCHREC_MIN_PARTITION, dim)
    return next((width for width in candidates if dim % width == 0 and width % WIDTH_STEP == 0), dim)


def piece_counts(least: int, most: int) -> list[int]:
    """Numbers of pieces worth trying between two limits: all small ones, then four per doubling."""
    counts = set(range(least, min(most, DENSE_COUNTS) + 1)) | {most}
    octave = DENSE_COUNTS
    while octave < most:
        counts |= {octave * quarter // 4 for quarter in (5, 6, 7, 8)}
        octave *= 2
    return sorted(count for count in counts if least <= count <= most)


@cache
def column_splits(
    dim: int, least: int, most: int, rule: str, min_width: int | None, *, equal: bool = False, fine: bool = False
) -> tuple[Split, ...]:
    """The splits of `dim` columns into `least` .. `most` pieces that a search tries.

    rule 'torchrec': the planner's one width. rule 'any': for each count the most even split, and splits that follow
    the blocks of the kernels (such as 128 + 64 for 192 columns). Bounds cover every split, not only these.
    equal: every split into pieces of one width, and no other. fine: also up to MOST_ALIKE pieces of any width and a
    rest.
    """
    if rule == "torchrec":
        width = torchrec_width(dim, min_width)
        return (((width, dim // width),),) if least <= dim // width <= most else ()
    if equal:
        splits = [_even(dim, count) for count in range(least, most + 1) if dim % (count * WIDTH_STEP) == 0]
    else:
        splits = [_even(dim, count) for count in piece_counts(least, most)]
        splits += [_blocks(dim, block, dim // block) for block in KERNEL_BLOCKS if block < dim and dim % block]
        splits += [_blocks(dim, width, count) for count, width in _fine(dim)] if fine else []
    fitting = (split for split in splits if split[-1][0] >= min(min_width or WIDTH_STEP, dim))
    legal = {split for split in fitting if least <= sum(count for _, count in split) <= most}
    return tuple(sorted(legal, key=_split_order))


def _split_order(split: Split) -> tuple[int, Split]:
    return sum(count for _, count in split), split


def _even(dim: int, count: int) -> Split:
    base, extra = divmod(dim // WIDTH_STEP, count)
    pairs = ((WIDTH_STEP * (base + 1), extra), (WIDTH_STEP * base, count - extra))
    return tuple(pair for pair in pairs if pair[1])


def _blocks(dim: int, block: int, count: int) -> Split:
    """Some blocks and a rest of another width, wide first."""
    pairs = ((block, count), (dim - block * count, 1))
    return pairs if pairs[0] > pairs[1] else pairs[::-1]


def _fine(dim: int) -> list[tuple[int, int]]:
    """(count, width) of pieces that leave a rest of another width."""
    widths = range(FINE_STEP, dim, FINE_STEP)
    return [(n, width) for n in range(1, MOST_ALIKE + 1) for width in widths if dim > n * width != dim - width]
