"""Plans that trained in a TorchRec job, beside what was predicted of each rank: as text, and as plain data."""

from rich.console import Group, RenderableType

from recsmith.files import Raw
from recsmith.reports.layout import grid, line
from recsmith.units import format_size, format_time
from recsmith.verifying.jobs.verification import JobVerification, RankMeasure

JOB_VERIFICATION_SCHEMA = "recsmith/verification/1"
COLUMNS = ("rank", "forward", "backward", "step", "predicted", "memory", "predicted", "of it base", "ratio")
NOTE = "ranks share this machine's cores: times show the order of ranks, not the speed of the plan's devices"


def job_verification_report(found: JobVerification) -> RenderableType:
    """Times and memory of each rank, measured and predicted."""
    workload, world = found.plan.workload, found.plan.cluster.job_world_size
    lines = [
        line("ran", f"{found.steps} steps of {workload.batch_size:,} samples on {world} ranks, TorchRec on CPU (gloo)"),
        line("times", f"medians; {NOTE}"),
        line("memory", f"of embeddings at the peak of a step; predicted within {found.worst_memory:.1%} of measured"),
        line("", "predicted is the real accounting on CPU, and the local batch and its outputs (base)"),
        line("digest", f"{found.plan.digest[:16]}"),
    ]
    made = grid(right=COLUMNS)
    for rank in found.ranks:
        made.add_row(*_row(rank))
    return Group(*lines, made)


def _row(rank: RankMeasure) -> tuple[str, ...]:
    times = (rank.forward_s, rank.backward_s, rank.step_s, rank.predicted_s)
    sizes = (rank.peak_bytes, rank.predicted_bytes, rank.base_bytes)
    ratio = rank.predicted_bytes / max(rank.peak_bytes, 1)
    return str(rank.rank), *map(format_time, times), *map(format_size, sizes), f"{ratio:.3f}"


def job_verification_to_raw(found: JobVerification) -> Raw:
    """Plain data of a plan that ran in a TorchRec job: schema recsmith/verification/1."""
    return {
        "schema": JOB_VERIFICATION_SCHEMA,
        "digest": found.plan.digest,
        "backend": "torchrec",
        "device": "cpu",
        "note": NOTE,
        "steps": found.steps,
        "batch_size": found.plan.workload.batch_size,
        "ranks": [_rank_to_raw(rank) for rank in found.ranks],
    }


def _rank_to_raw(rank: RankMeasure) -> Raw:
    fields = {name: getattr(rank, name) for name in RankMeasure.__dataclass_fields__}
    return fields | {"predicted_bytes": rank.predicted_bytes}
