"""Samples: what several visits of one case say together, and which case is visited next.

Other tenants of a machine slow a core down for milliseconds to minutes, and nothing makes it faster than it is. So a
sample is visited until its two fastest visits agree; samples of a block take turns, so that seconds lie between two
visits. What a sample takes is what its fastest visit takes, forward and backward each by themselves.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from recsmith._types import noun

EVERY = 10  # samples: nine of new cases, then one of a case that was measured before
BLOCK = 20  # samples that take turns
VISITS = 5  # of a sample, at most
AGREE = 0.05  # how far the two fastest visits of a steady sample may be apart

Seconds = tuple[float, float]  # forward and backward of a visit
OF_VISIT = ("sample", "status", "forward_s", "backward_s")  # columns that say how a sample stands


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

    status: ok (the two fastest visits agree within AGREE); unsteady (after VISITS they still do not); open (it will be
        visited again); or what ended it: out_of_memory, failed, interrupted.
    forward_s, backward_s: the fastest; None where no visit has any. apart: second fastest visit / fastest - 1, forward
        and backward together; None with fewer than two.
    """

    sample: int
    visits: int
    status: str
    forward_s: float | None = None
    backward_s: float | None = None
    apart: float | None = None

    @property
    def over(self) -> bool:
        """Whether no visit is to follow."""
        return self.status != "open"


def judge(sample: int, visits: Sequence[Seconds], last: str = "ok") -> Sample:
    """The sample of some visits. last: status of the last one, which is not among them unless it is ok."""
    totals = sorted(forward + backward for forward, backward in visits)
    apart = totals[1] / totals[0] - 1 if len(totals) > 1 else None
    if last != "ok":
        status = last
    elif apart is not None and apart <= AGREE:
        status = "ok"
    else:
        status = "open" if len(totals) < VISITS else "unsteady"
    return Sample(
        sample=sample, visits=len(visits) + (last != "ok"), status=status, apart=apart,
        forward_s=min((forward for forward, _ in visits), default=None),
        backward_s=min((backward for _, backward in visits), default=None),
    )  # fmt: skip


class Schedule:
    """All samples of a run so far, and which is visited next: block after block of BLOCK samples, round after round.

    steady: how many samples are ok.
    """

    def __init__(self) -> None:
        self._visits: dict[int, list[Seconds]] = {}
        self._samples: dict[int, Sample] = {}
        self._block = 0
        self.steady = 0

    def note(self, sample: int, status: str, seconds: Seconds | None) -> Sample:
        """Take in the next visit; the sample as it then stands. seconds: None where the visit failed."""
        visits = self._visits.setdefault(sample, [])
        visits += [seconds] if seconds else []
        found = self._samples[sample] = judge(sample, visits, status)
        self.steady += found.status == "ok"
        return found

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
        """Samples in order of their places."""
        return iter(sorted(self._samples.values(), key=lambda found: found.sample))

    def _over(self, sample: int) -> bool:
        return sample in self._samples and self._samples[sample].over

    def _count(self, sample: int) -> int:
        return self._samples[sample].visits if sample in self._samples else 0


def schedule_of(found: dict[str, list[Any]]) -> Schedule:
    """The schedule that rows leave behind: columns OF_VISIT, in order of positions."""
    schedule = Schedule()
    for sample, status, forward, backward in zip(*(found[name] for name in OF_VISIT), strict=True):
        schedule.note(sample, status, None if forward is None else (forward, backward))
    return schedule
