"""The interface of an update: how a model learns a new period.

    class Update(Protocol)                       # data: {periods: {samples: 8192, update: {name: "mine:Update"}}}

Before a period is trained, and after it was scored, the loop calls `weights`. Every step then takes a batch of that
period and one of each earlier period with a weight, and adds up their losses with these weights. Tables, plans,
optimizers and steps see one batch with one loss, so any of them can be used.
"""

from typing import Any, Protocol

from recsmith.files import Raw


class Update(Protocol):
    """A way to learn a new period. It is made from its settings, on every rank."""

    window: int = 1  # periods whose samples one pass takes together, including the new one
    mixed: int = 1  # most periods of which a step takes a batch each
    least: int = 1  # fewest periods that a stream must have

    def weights(self, job: Any, period: int) -> tuple[float, ...]:
        """Weights of the losses of a period, of the one before it, and so on; called on every rank.

        job: the TrainingJob, in its state before the period is trained. If a job continues within a period, this is
        called again after `from_raw`, and must return the same weights.
        """
        return (1.0,)

    def to_raw(self) -> Raw | None:
        """The state that a checkpoint keeps (JSON data); None if there is none."""
        return None

    def from_raw(self, raw: Raw) -> None:
        """Restore the state from a checkpoint, on every rank."""
