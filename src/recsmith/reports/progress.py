"""The progress of a long run in one line: runs that measure, verify, train, benchmark or reshard."""

from typing import TYPE_CHECKING

from recsmith.units import counted, format_size, format_time

if TYPE_CHECKING:  # these import torch or numpy, which --help does not need
    from recsmith.adapters.reshard import ReshardProgress
    from recsmith.bench.sharding import BenchProgress
    from recsmith.learning.policies import DreamShardIteration, SplitIteration
    from recsmith.learning.training_loop import Epoch
    from recsmith.measuring.compute import MeasuringProgress
    from recsmith.verifying.verification import JobProgress
    from recsmith.verifying.visits import VisitProgress


def measuring_words(progress: "MeasuringProgress") -> str:
    """Progress of `recsmith measure compute`."""
    return f"{progress.samples:,} samples, {progress.per_hour:,.0f} an hour{time_left(progress.left_s)}"


def verifying_words(progress: "VisitProgress") -> str:
    """Progress of `recsmith verify`; the remaining loads are assumed to take as long each as those before."""
    seconds = progress.elapsed_s * (progress.total / progress.done - 1)
    done = f"{progress.done} of {progress.total} measured"
    return f"visit {progress.visit} of {progress.visits}, {done}{time_left(seconds)}"


def job_words(progress: "JobProgress") -> str:
    """Progress of `recsmith verify --torchrec`."""
    steps = f" step {progress.step} of {progress.steps}" if progress.steps else ""
    ranks = f" {counted(progress.ranks, 'rank')}" if progress.stage == "starting" else ""
    return f"{progress.stage}{ranks}{steps}"


def training_words(epoch: "Epoch") -> str:
    """Progress of `recsmith learn`; the remaining epochs are assumed to take as long each as those before."""
    seconds = epoch.elapsed_s * (epoch.epochs / epoch.number - 1)
    off = f"off by {epoch.error:.1%} (best {epoch.best:.1%})"
    return f"epoch {epoch.number} of {epoch.epochs}, {off}{time_left(seconds)}"


def policy_words(iteration: "DreamShardIteration") -> str:
    """Progress of `recsmith learn dreamshard` and `autoshard`."""
    done = f"iteration {iteration.number} of {iteration.iterations}, {iteration.measured:,} placements measured"
    return f"{done}, steps of {format_time(iteration.measured_s)}, predicted within {iteration.error:.1%}"


def split_words(iteration: "SplitIteration") -> str:
    """Progress of `recsmith learn splits`."""
    steps = f"steps beside longest-first's {0 - iteration.searched:+.1%} by search, {0 - iteration.drawn:+.1%} as drawn"
    return f"iteration {iteration.number} of {iteration.iterations}, {steps}"


def bench_words(progress: "BenchProgress") -> str:
    """Progress of `recsmith bench`."""
    return f"{progress.what}: {progress.done:,} of {progress.total:,}, {progress.elapsed_s / 60:.1f} min"


def moving_words(progress: "ReshardProgress") -> str:
    """Progress of `recsmith reshard`."""
    return f"{format_size(progress.done)} of {format_size(progress.total)} written"


def time_left(seconds: float | None) -> str:
    """', 3.2 min left'; '' if the remaining time is unknown."""
    return "" if seconds is None else f", {seconds / 60:.1f} min left"
