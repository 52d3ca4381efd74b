"""Scores of predictions, as files and reports hold them."""

from recsmith._types import noun


@noun
class Scores:
    """How good predictions are: of `samples`, in nats and shares.

    ne: cross entropy over that of always predicting the mean label. calibration: mean prediction over mean label.
    """

    samples: int
    logloss: float
    ne: float
    calibration: float
    auc: float
