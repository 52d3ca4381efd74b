"""Names that help texts list. Written out, for help imports nothing heavy; a test holds them against the registries."""

PLANNERS = (
    "auto", "neuroshard", "dreamshard", "autoshard", "surco", "rnn", "ldm", "random", "dim_greedy", "size_greedy",
    "lookup_greedy",
    "size_lookup_greedy", "cost_greedy", "exact",
)  # fmt: skip
TYPES = (
    "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard", "data_parallel",
)  # fmt: skip
KERNELS = ("fused", "dense", "fused_uvm", "fused_uvm_caching")
DEVICES = (
    "a100-40", "a100-80", "a10g", "b200", "cpu", "gb200", "h100", "h200", "l4", "l40s", "mi300x", "torchrec-default",
    "v100-32",
)  # fmt: skip


def listed(names: tuple[str, ...]) -> str:
    """Names with commas between them, as help and options take them."""
    return ", ".join(names)
