"""Ways to store a table of 90 rows and 8 columns, and bags of its ids."""

import numpy as np

from recsmith.data import JaggedIds
from recsmith.embeddings import EmbeddingTransform, by_popularity, learn_hash
from recsmith.embeddings.compositional import Compositional
from recsmith.embeddings.hashing import Hashing
from recsmith.embeddings.mixed_dimension import MixedDimension, WidthBlock
from recsmith.embeddings.path_based import PathBased
from recsmith.embeddings.truncated import Truncated

ROWS, COLUMNS, LONGEST = 90, 8, 3
COUNTS = np.random.default_rng(5).integers(0, 50, ROWS)


def _compositional(sizes: tuple[int, ...], **words: object) -> Compositional:
    return Compositional(num_embeddings=ROWS, embedding_dim=COLUMNS, sizes=sizes, max_bag=LONGEST, **words)  # type: ignore[arg-type]


def _blocks(*blocks: tuple[int, int]) -> MixedDimension:
    made = tuple(WidthBlock(num_embeddings=rows, embedding_dim=columns) for rows, columns in blocks)
    return MixedDimension(num_embeddings=ROWS, embedding_dim=COLUMNS, blocks=made, order=by_popularity(COUNTS))


_VECTORS = np.random.default_rng(6).normal(size=(ROWS, 2))
TRANSFORMS: dict[str, EmbeddingTransform] = {
    "hash": Hashing(num_embeddings=ROWS, embedding_dim=COLUMNS, rows=20),
    "multiply": _compositional((9, 10)),
    "add": _compositional((9, 10), operation="add"),
    "concat": _compositional((9, 10), operation="concat"),
    "generate": _compositional((9, 10), operation="generate"),
    "path": PathBased(num_embeddings=ROWS, embedding_dim=COLUMNS, networks=4, hidden=5, max_bag=LONGEST),
    "three": _compositional((5, 5, 4)),
    "chinese": _compositional((9, 11), family="chinese_remainder"),
    "blocks": _blocks((10, 8), (15, 4), (25, 2), (40, 1)),
    "truncated": Truncated(num_embeddings=ROWS, embedding_dim=COLUMNS, columns=4, rows=30),
    "learned": Hashing(
        num_embeddings=ROWS, embedding_dim=COLUMNS, rows=50,
        row_of=learn_hash(_VECTORS, np.where(COUNTS > 25, COUNTS, 0), 50, private=0.9),
    ),
}  # fmt: skip


def bags(rows: int, count: int, *, seed: int, length: int | None = None) -> JaggedIds:
    """Bags of 0 to LONGEST ids, some of them twice."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, LONGEST + 1, count) if length is None else np.full(count, length)
    return JaggedIds(values=rng.integers(0, rows, int(lengths.sum())), lengths=lengths.astype(np.int32))
