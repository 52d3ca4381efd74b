"""What a plan took when it ran, beside what was predicted: as text, and as plain data."""

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from recsmith.files import Raw
from recsmith.units import format_size, format_time
from recsmith.verifying.jobs.verify import JobVerification, RankMeasure

VERIFICATION_SCHEMA = "recsmith/verification/1"
COLUMNS = ("rank", "forward", "backward", "step", "predicted", "memory", "predicted", "of it base", "ratio")
NOTE = "ranks share this machine's cores: times show the order of ranks, not the speed of the plan's devices"


def verification_report(done: JobVerification) -> RenderableType:
    """Times and memory of each rank, measured and predicted."""
    workload, world = done.plan.workload, done.plan.cluster.world_size
    lines = [
        _line("ran", f"{done.steps} steps of {workload.batch_size:,} samples on {world} ranks, TorchRec on CPU (gloo)"),
        _line("times", f"medians; {NOTE}"),
        _line("memory", f"of embeddings at the peak of a step; predicted within {done.worst_memory:.1%} of measured"),
        _line("", "predicted is the real accounting on CPU, and the local batch and its outputs (base)"),
        _line("digest", f"{done.plan.digest[:16]}"),
    ]
    grid = Grid(box=SIMPLE, pad_edge=False)
    for name in COLUMNS:
        grid.add_column(name, justify="right")
    for rank in done.ranks:
        grid.add_row(*_row(rank))
    return Group(*lines, grid)


def _line(word: str, text: str) -> Text:
    return Text.assemble((f"{word:<9}", "bold"), text)


def _row(rank: RankMeasure) -> tuple[str, ...]:
    times = (rank.forward_s, rank.backward_s, rank.step_s, rank.predicted_s)
    sizes = (rank.peak_bytes, rank.predicted_bytes, rank.base_bytes)
    ratio = rank.predicted_bytes / max(rank.peak_bytes, 1)
    return str(rank.rank), *map(format_time, times), *map(format_size, sizes), f"{ratio:.3f}"


def verification_to_raw(done: JobVerification) -> Raw:
    """Plain data of a verification: schema recsmith/verification/1."""
    return {
        "schema": VERIFICATION_SCHEMA,
        "digest": done.plan.digest,
        "backend": "torchrec",
        "device": "cpu",
        "note": NOTE,
        "steps": done.steps,
        "batch_size": done.plan.workload.batch_size,
        "ranks": [_rank_to_raw(rank) for rank in done.ranks],
    }


def _rank_to_raw(rank: RankMeasure) -> Raw:
    fields = {name: getattr(rank, name) for name in RankMeasure.__dataclass_fields__}
    return fields | {"predicted_bytes": rank.predicted_bytes}
