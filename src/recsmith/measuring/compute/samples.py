"""Samples: what several visits of one case say together, and which case is visited next.

A sample takes what its fastest visit takes, forward and backward each by themselves. Other tenants of a machine slow a
core down for milliseconds to minutes, and nothing makes it faster than it is. So a sample is visited until its two
fastest visits agree. Samples of a block take turns, so that seconds lie between two visits of one. A sample is set
aside where all of its visits fell into minutes in which the probe was slow as well (docs/decisions/0007).
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from recsmith._types import noun

BLOCK_SAMPLES = 20  # samples that take turns. Trade-off: more put visits further apart, and leave more open at the end
MOST_VISITS = 5  # of a sample. With 5, nine samples of ten have two that agree (measured: docs/decisions/0007)
AGREE_WITHIN = 0.05  # relative difference of the two fastest visits of a steady sample: two samples of a case are then
# 1.6 % apart at the median (docs/decisions/0007)
SLOW_PROBE = 1.5  # times the usual best: a slower probe around all visits sets a sample aside. 1.25 loses samples and
# gains nothing, 2 adds some that do harm (measured on shipped:cpu, docs/decisions/0007)
USUAL_SHARE = 0.02  # of all probes are faster than the usual best. Trade-off: smaller follows single lucky probes,
# larger takes slow minutes for usual ones; not tuned further

VISIT_COLUMNS = ("sample", "status", "forward_s", "backward_s", "probe_s")  # what a schedule takes from a row


class Visit(NamedTuple):
    """Seconds of a visit, and of the probe around it."""

    forward_s: float
    backward_s: float
    probe_s: float


@noun
class Sample:
    """A sample, as its visits show it.

    status: ok (the two fastest visits agree within AGREE_WITHIN); slowed (they do, but all probes were slow); unsteady
        (after MOST_VISITS they still do not agree); open (it will be visited again); or what ended it: out_of_memory,
        failed, interrupted.
    forward_s, backward_s: the fastest; None where no visit has any. apart: second fastest visit / fastest - 1, forward
        and backward together; None with fewer than two. probe_s: the fastest probe of its visits.
    """

    sample: int
    visits: int
    status: str
    forward_s: float | None = None
    backward_s: float | None = None
    apart: float | None = None
    probe_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether no visit is to follow."""
        return self.status != "open"


def judge(sample: int, visits: Sequence[Visit], last: str = "ok") -> Sample:
    """The sample of its visits. last: status of the last visit, which is among `visits` only if it is ok."""
    totals = sorted(visit.forward_s + visit.backward_s for visit in visits)
    apart = totals[1] / totals[0] - 1 if len(totals) > 1 else None
    if last != "ok":
        status = last
    elif apart is not None and apart <= AGREE_WITHIN:
        status = "ok"
    else:
        status = "open" if len(totals) < MOST_VISITS else "unsteady"
    return Sample(
        sample=sample, visits=len(visits) + (last != "ok"), status=status, apart=apart,
        forward_s=min((visit.forward_s for visit in visits), default=None),
        backward_s=min((visit.backward_s for visit in visits), default=None),
        probe_s=min((visit.probe_s for visit in visits), default=None),
    )  # fmt: skip


class Schedule:
    """All samples of a run so far, and which one is visited next.

    Block after block of BLOCK_SAMPLES samples; within a block, the sample with the fewest visits comes first.
    """

    def __init__(self) -> None:
        self._visits: dict[int, list[Visit]] = {}
        self._samples: dict[int, Sample] = {}
        self._agreed: list[float] = []  # probes of samples whose visits agree, the fastest first
        self._probes: list[float] = []  # of all visits, the fastest first
        self._block = 0  # first sample of the block whose samples take turns

    def note(self, sample: int, status: str, visit: Visit | None) -> Sample:
        """Take in a visit; returns the sample as all its visits now show it. visit: None where it failed."""
        visits = self._visits.setdefault(sample, [])
        if visit:
            visits.append(visit)
            insort(self._probes, visit.probe_s)
        judged = self._samples[sample] = judge(sample, visits, status)
        if judged.status == "ok" and judged.probe_s is not None:
            insort(self._agreed, judged.probe_s)
        return judged

    @property
    def steady(self) -> int:
        """How many samples are ok, judged by the probes up to now."""
        return bisect_right(self._agreed, self._slowest_probe)

    @property
    def _slowest_probe(self) -> float:
        return SLOW_PROBE * self._probes[int(USUAL_SHARE * len(self._probes))] if self._probes else 0.0

    @property
    def next(self) -> tuple[int, int]:
        """(sample, visit) that comes next."""
        while True:
            block = range(self._block, self._block + BLOCK_SAMPLES)
            waiting = [(self._count(sample), sample) for sample in block if not self._over(sample)]
            if waiting:
                visit, sample = min(waiting)
                return sample, visit
            self._block += BLOCK_SAMPLES

    def __iter__(self) -> Iterator[Sample]:
        """Samples in order of their places; those of slow minutes have the status slowed."""
        limit = self._slowest_probe
        for _, sample in sorted(self._samples.items()):
            slowed = sample.status == "ok" and (sample.probe_s or 0.0) > limit
            yield replace(sample, status="slowed") if slowed else sample

    def _over(self, sample: int) -> bool:
        return sample in self._samples and self._samples[sample].over

    def _count(self, sample: int) -> int:
        return self._samples[sample].visits if sample in self._samples else 0


def schedule_of(columns: dict[str, list[Any]]) -> Schedule:
    """The schedule of a run so far, from columns VISIT_COLUMNS of its rows in order of positions."""
    schedule = Schedule()
    for sample, status, *seconds in zip(*(columns[name] for name in VISIT_COLUMNS), strict=True):
        schedule.note(sample, status, visit_of(*seconds))
    return schedule


def visit_of(forward_s: float | None, backward_s: float | None, probe_s: float | None) -> Visit | None:
    """The visit of a row; None where it failed."""
    return None if forward_s is None or backward_s is None else Visit(forward_s, backward_s, probe_s or 0.0)
