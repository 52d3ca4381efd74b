"""Plain data of any shape, and of a workload of one table."""

from typing import Any

from hypothesis import strategies as st

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e20, 1e20) | PRINTABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PRINTABLE, inner, max_size=3),
    max_leaves=8,
)


def raw_workload(**table: Any) -> dict[str, Any]:
    """Plain data of a workload of one table; fields given here are put on the table."""
    fields = {"name": "user_id", "num_embeddings": 1000, "embedding_dim": 128, "pooling_factor": 1.5}
    return {"schema": "recsmith/workload/1", "batch_size": 8, "optimizer": "sgd", "tables": [fields | table]}
