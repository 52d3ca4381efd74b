"""Scores of predictions, as files, logs and reports hold them, and their means over seeds."""

import statistics
from collections.abc import Sequence

from recsmith._types import noun


@noun
class Scores:
    """How good predictions are: of `samples`, in nats and shares.

    ne: cross entropy over that of always predicting the mean label; 0 where all labels are equal, which have none.
    calibration: mean prediction over mean label. corrupt: samples beside them that were left out.
    """

    samples: int
    logloss: float
    ne: float
    calibration: float
    auc: float
    corrupt: int = 0


def ne_text(ne: float) -> str:
    """A normalised entropy, or why there is none."""
    return f"NE {ne:.4f}" if ne else "no NE (all labels are equal)"


def scores_text(scores: Scores) -> str:
    """Scores in a line."""
    left = f"; {scores.corrupt:,} corrupt ones were left out" if scores.corrupt else ""
    return (
        f"log loss {scores.logloss:.5f}, {ne_text(scores.ne)}, AUC {scores.auc:.5f}, calibration "
        f"{scores.calibration:.4f} of {scores.samples:,} samples{left}"
    )


STUDENT = (  # at 95 %, 1 to 14 degrees of freedom
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
)  # fmt: skip


def mean_within(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half of its 95 % interval by Student's t); None for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    t = STUDENT[min(len(values) - 2, len(STUDENT) - 1)]
    return mean, t * statistics.stdev(values) / len(values) ** 0.5
