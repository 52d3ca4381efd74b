"""A small run of the sharding benchmark, made once for all tests that only read it."""

from functools import cache
from pathlib import Path

from recsmith.bench.journal import BenchSettings
from recsmith.bench.sharding import BenchResults, bench_sharding
from recsmith.bench.tasks import DimRow, draw_tasks

SETTINGS = BenchSettings(
    hardware="simulated:h100?noise=0.03", cost_model="analytic", rows=("4x128", "4x64"), tasks=1,
    planners=("random", "cost_greedy", "size_greedy@torchrec"), visits=2, seed=2026, global_batch=65_536,
)  # fmt: skip
TASK = draw_tasks(DimRow(devices=4, max_dim=64), 1, 2026, "h100", 65_536).tasks[0]


@cache
def whole_run(base: Path) -> tuple[Path, BenchResults]:
    """The folder of a complete run, below that of the session, and what it found."""
    path = base / "whole-bench"
    return path, bench_sharding(SETTINGS, path)
