"""Folders of measurements, and checks of kernels: as lines and as plain data."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recsmith.clusters import Disk
from recsmith.measuring.about import load_about
from recsmith.measuring.comm import fit_alpha_beta
from recsmith.measuring.correctness import KernelAgreement
from recsmith.measuring.disk import READERS
from recsmith.measuring.folder import read_columns
from recsmith.measuring.summary import Summary, summarize
from recsmith.reports.layout import plain_line
from recsmith.units import format_size, format_speed, format_time

SUMMARY_SCHEMA = "recsmith/measurements-summary/1"
BAR = 40  # characters of the longest bar


def disk_lines(disk: Disk, kind: str | None = None) -> list[str]:
    """A disk as one line of YAML for a cluster file, followed by what the figures mean. kind: the file system."""
    reads, size = round(disk.reads_per_s), format_size(disk.access_bytes)
    return [
        f"disk: {{bandwidth: {format_speed(disk.bandwidth)}, reads_per_s: {reads}, access_bytes: {disk.access_bytes}}}",
        f"# {reads:,} random reads of {size} a second, and reads of 4 MiB; {READERS} threads, the page cache bypassed",
        f"# file system: {kind or 'unknown'}",
    ]


def summary_to_raw(path: Path) -> dict[str, Any]:
    """A folder of measurements as plain data: schema recsmith/measurements-summary/1."""
    if load_about(path).kind == "comm":
        model = fit_alpha_beta(path)
        return {"schema": SUMMARY_SCHEMA, **_exchanges(path), "alpha_beta": asdict(model) if model else None}
    return {"schema": SUMMARY_SCHEMA, **asdict(summarize(path))}


def summary_lines(path: Path) -> list[str]:
    """The summary of a folder: for kernels their statistics, for all-to-alls the fitted model."""
    return _comm_lines(path) if load_about(path).kind == "comm" else _compute_lines(summarize(path))


def _compute_lines(found: Summary) -> list[str]:
    about, noise = found.about, found.noise
    counts = ", ".join(f"{count:,} {status}" for status, count in found.counts.items()) or "none"
    return [
        plain_line("what", f"{about.kind} on {about.hardware}, scale {about.scale}, seed {about.seed}"),
        plain_line("samples", f"{found.samples:,}: {counts}; {found.visits:,} visits"),
        *(plain_line("device", each) for each in found.devices),
        *(plain_line("versions", each) for each in found.versions),
        plain_line("measured", f"{found.first} to {found.last}" if found.first else "never"),
        plain_line("speed", f"{found.per_hour:,.0f} samples an hour" if found.per_hour else "unknown"),
        plain_line("noise", _noise_words(noise.pairs, noise.median, noise.mean)),
        *([plain_line("probe", _probe_words(found.probes))] if any(found.probes) else []),
        plain_line("trained", ", ".join(f"{count:,} {name}" for name, count in found.trained.items()) or "nothing"),
        *(plain_line("failure", f"{count:,} x {message}") for message, count in found.failures.items()),
        "",
        "ids of an iteration, steady samples",
        *_bars(found.histogram),
    ]


def _noise_words(pairs: int, median: float | None, mean: float | None) -> str:
    if median is None or mean is None:
        return "unknown: no case was measured twice"
    return f"two samples of a case differ by {median:.1%} (median), {mean:.1%} (mean) of {pairs:,} pairs"


def _probe_words(probes: tuple[float, ...]) -> str:
    low, middle, high = (format_time(seconds) for seconds in probes)
    return f"{middle} at the median of visits, {low} to {high} for nine in ten: its range is the machine's"


def _bars(histogram: dict[str, int]) -> list[str]:
    most = max(histogram.values(), default=1)
    return [f"  {name:>5} {count:>8,}  {'#' * -(-count * BAR // most)}" for name, count in histogram.items()]


def _comm_lines(path: Path) -> list[str]:
    found, model = _exchanges(path), fit_alpha_beta(path)
    oversubscribed = "; ranks outnumber cores: the scheduler is measured" if found["oversubscribed"] else ""
    lines = [
        plain_line(
            "what", f"all-to-all of {found['ranks']} {found['backend']} ranks, seed {found['seed']}{oversubscribed}"
        ),
        plain_line("samples", f"{found['samples']:,}"),
        *(plain_line("device", each) for each in found["devices"]),
    ]
    if model is None:
        return [*lines, plain_line("model", "none: it takes some exchanges without skew, and on CPU two ranks")]
    formula = (
        f"{format_time(model.alpha_s)} + bytes / {format_size(model.bytes_per_s)}/s, off by {model.median_error:.0%}"
    )
    return [*lines, plain_line("model", f"{formula} (median of {model.samples}); {model.label}")]


def _exchanges(path: Path) -> dict[str, Any]:
    found = read_columns(path, ["backend", "oversubscribed", "device"])
    about = load_about(path)
    return {
        "ranks": about.ranks,
        "seed": about.seed,
        "samples": len(found["backend"]),
        "backend": ", ".join(sorted(set(found["backend"]))),
        "oversubscribed": any(found["oversubscribed"]),
        "devices": sorted(set(found["device"])),
    }


def kernel_check_lines(found: Sequence[KernelAgreement]) -> list[str]:
    """The largest relative differences per optimizer and data type; those beyond rounding are marked as wrong."""
    return [
        f"{'optimizer':<16}{'weights':<9}{'cases':>5}  outputs differ by  updated weights by",
        *(
            f"{each.optimizer:<16}{each.data_type:<9}{each.cases:>5}{each.outputs:>17.1e}{each.weights:>20.1e}"
            f"{'' if each.agrees else '  WRONG'}"
            for each in found
        ),
    ]
