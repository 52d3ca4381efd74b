"""Samples: what several visits of one case say together, and which case is visited next.

Other tenants of a machine slow a core down for milliseconds to minutes, and nothing makes it faster than it is. So a
sample is visited until its two fastest visits agree; samples of a block take turns, so that seconds lie between two
visits. What a sample takes is what its fastest visit takes, forward and backward each by themselves. Where all visits
fell into minutes in which the probe was slow as well, the sample is set aside.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from recsmith._types import noun

EVERY = 10  # samples: nine of new cases, then one of a case that was measured before
BLOCK = 20  # samples that take turns
VISITS = 5  # of a sample, at most
AGREE = 0.05  # how far the two fastest visits of a steady sample may be apart
SLOWED = 1.5  # how much slower than its usual best the probe may be around the best of a steady sample's visits
USUAL = 0.02  # share of all probes that are faster than what counts as the usual best

OF_VISIT = ("sample", "status", "forward_s", "backward_s", "probe_s")  # columns that say how a sample stands


class Visit(NamedTuple):
    """Seconds of a visit, and of the probe around it."""

    forward_s: float
    backward_s: float
    probe_s: float


def which(sample: int) -> tuple[int, int]:
    """(number of the case, how often it was sampled before). Every tenth is a case from half as far into the run.

    So the time between the two grows with the run, and what they differ by holds its drift.
    """
    ten, place = divmod(sample, EVERY)
    if place < EVERY - 1:
        return ten * (EVERY - 1) + place, 0
    return ten // 2 * (EVERY - 1) + ten % 2, 1


@noun
class Sample:
    """A sample as its visits tell.

    status: ok (the two fastest visits agree within AGREE); slowed (they do, but the probe of all visits was slow);
        unsteady (after VISITS they still do not agree); open (it will be visited again); or what ended it:
        out_of_memory, failed, interrupted.
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
    """The sample of some visits. last: status of the last one, which is not among them unless it is ok."""
    totals = sorted(visit.forward_s + visit.backward_s for visit in visits)
    apart = totals[1] / totals[0] - 1 if len(totals) > 1 else None
    if last != "ok":
        status = last
    elif apart is not None and apart <= AGREE:
        status = "ok"
    else:
        status = "open" if len(totals) < VISITS else "unsteady"
    return Sample(
        sample=sample, visits=len(visits) + (last != "ok"), status=status, apart=apart,
        forward_s=min((visit.forward_s for visit in visits), default=None),
        backward_s=min((visit.backward_s for visit in visits), default=None),
        probe_s=min((visit.probe_s for visit in visits), default=None),
    )  # fmt: skip


class Schedule:
    """All samples of a run so far, and which is visited next: block after block of BLOCK samples, round after round."""

    def __init__(self) -> None:
        self._visits: dict[int, list[Visit]] = {}
        self._samples: dict[int, Sample] = {}
        self._agreed: list[float] = []  # probes of samples whose visits agree, the fastest first
        self._probes: list[float] = []  # of all visits, the fastest first
        self._block = 0

    def note(self, sample: int, status: str, visit: Visit | None) -> Sample:
        """Take in the next visit; the sample as its own visits tell. visit: None where it failed."""
        visits = self._visits.setdefault(sample, [])
        if visit:
            visits.append(visit)
            insort(self._probes, visit.probe_s)
        found = self._samples[sample] = judge(sample, visits, status)
        if found.status == "ok" and found.probe_s is not None:
            insort(self._agreed, found.probe_s)
        return found

    @property
    def steady(self) -> int:
        """How many samples are ok, as far as can be told by now."""
        return bisect_right(self._agreed, self._slowest_probe)

    @property
    def _slowest_probe(self) -> float:
        return SLOWED * self._probes[int(USUAL * len(self._probes))] if self._probes else 0.0

    @property
    def next(self) -> tuple[int, int]:
        """(sample, visit) that comes next."""
        while True:
            block = range(self._block, self._block + BLOCK)
            waiting = [(self._count(sample), sample) for sample in block if not self._over(sample)]
            if waiting:
                visit, sample = min(waiting)
                return sample, visit
            self._block += BLOCK

    def __iter__(self) -> Iterator[Sample]:
        """Samples in order of their places, those of slow minutes set aside."""
        limit = self._slowest_probe
        for _, found in sorted(self._samples.items()):
            slowed = found.status == "ok" and (found.probe_s or 0.0) > limit
            yield replace(found, status="slowed") if slowed else found

    def _over(self, sample: int) -> bool:
        return sample in self._samples and self._samples[sample].over

    def _count(self, sample: int) -> int:
        return self._samples[sample].visits if sample in self._samples else 0


def schedule_of(found: dict[str, list[Any]]) -> Schedule:
    """The schedule that rows leave behind: columns OF_VISIT, in order of positions."""
    schedule = Schedule()
    for sample, status, *seconds in zip(*(found[name] for name in OF_VISIT), strict=True):
        schedule.note(sample, status, visit_of(*seconds))
    return schedule


def visit_of(forward_s: float | None, backward_s: float | None, probe_s: float | None) -> Visit | None:
    """The visit of a row; None where it failed."""
    return None if forward_s is None or backward_s is None else Visit(forward_s, backward_s, probe_s or 0.0)
