"""Summary of a folder of compute measurements: how many samples, how steady, how fast, and of which device.

Legend: P pairs of samples of one case.
"""

import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from recsmith._types import noun
from recsmith.measuring.about import About, load_about
from recsmith.measuring.cases import case_of
from recsmith.measuring.folder import read_columns
from recsmith.measuring.samples import VISIT_COLUMNS, KernelSample, schedule_of

READ_COLUMNS = (*VISIT_COLUMNS, "ids", "elapsed_s", "device", "versions", "date", "optimizer", "data_type",
                "message")  # fmt: skip


@noun
class Noise:
    """Relative difference of two samples of a case: |second / first - 1| of forward and backward together.

    pairs: P, both samples steady. median, mean: the noise floor. None without pairs.
    """

    pairs: int
    median: float | None
    mean: float | None


@noun
class Summary:
    """A folder of compute measurements.

    counts: samples by status (as in `KernelSample`). histogram: steady samples by decade of ids ('10^3': 1,000 to
    9,999). trained: steady samples by optimizer and data type. probes: seconds of the probe at 5, 50 and 95 % of the
    visits. per_hour: samples over the time that visits took. failures: messages of failed samples, with the number of
    each.
    """

    about: About
    samples: int
    visits: int
    counts: dict[str, int]
    histogram: dict[str, int]
    trained: dict[str, int]
    noise: Noise
    probes: tuple[float, ...]
    per_hour: float | None
    devices: tuple[str, ...]
    versions: tuple[str, ...]
    first: str
    last: str
    failures: dict[str, int]


def summarize(path: Path) -> Summary:
    """The summary of a folder; CorruptFile if a file of it is damaged."""
    about = load_about(path)
    found = read_columns(path, READ_COLUMNS)
    samples = list(schedule_of(found, about.hardware))
    first = {sample: i for i, sample in reversed(list(enumerate(found["sample"])))}
    steady = [first[each.sample] for each in samples if each.status == "ok"]
    took = sum(seconds or 0.0 for seconds in found["elapsed_s"])
    return Summary(
        about=about,
        samples=len(samples),
        visits=len(found["sample"]),
        counts=dict(Counter(each.status for each in samples)),
        histogram=_histogram([found["ids"][i] for i in steady]),
        trained=dict(sorted(Counter(f"{found['optimizer'][i]} {found['data_type'][i]}" for i in steady).items())),
        noise=noise_floor(samples),
        probes=_quantiles([seconds for seconds in found["probe_s"] if seconds is not None]),
        per_hour=len(samples) / took * 3600 if took else None,
        devices=tuple(sorted(set(found["device"]))),
        versions=tuple(sorted(set(found["versions"]))),
        first=min(found["date"], default=""),
        last=max(found["date"], default=""),
        failures=dict(Counter(message for message in found["message"] if message)),
    )


def noise_floor(samples: Iterable[KernelSample]) -> Noise:
    """The noise of steady samples, in order of their places."""
    last: dict[int, float] = {}
    apart: list[float] = []
    for each in samples:
        if each.status != "ok" or each.forward_s is None or each.backward_s is None:
            continue
        (number, _), total = case_of(each.sample), each.forward_s + each.backward_s
        if number in last:
            apart.append(abs(total / last[number] - 1))
        last[number] = total
    if not apart:
        return Noise(pairs=0, median=None, mean=None)
    return Noise(pairs=len(apart), median=statistics.median(apart), mean=statistics.fmean(apart))


def _quantiles(seconds: list[float]) -> tuple[float, ...]:
    """The 5 %, 50 % and 95 % quantiles; () of no values."""
    ordered = sorted(seconds)
    return tuple(ordered[int(share * (len(ordered) - 1))] for share in (0.05, 0.5, 0.95)) if ordered else ()


def _histogram(ids: list[int]) -> dict[str, int]:
    decades = Counter(len(str(count)) - 1 if count else -1 for count in ids)
    return {"none" if decade < 0 else f"10^{decade}": count for decade, count in sorted(decades.items())}
