"""Scores of predictions, as files, logs and reports hold them."""

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
