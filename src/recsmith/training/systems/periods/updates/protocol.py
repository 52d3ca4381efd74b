"""What an update is: how a model learns a period that has come.

    class Update(Protocol)                       # data: {periods: {samples: 8192, update: {name: "mine:Update"}}}

Before a period is trained, and after it was scored, the loop asks `weights`: every step then takes a batch of that
period and one of each period before it that has a weight, and adds up their losses with these weights. Tables, plans,
optimizers and steps see one batch with one loss, so any of them goes.
"""

from typing import Any, Protocol

from recsmith.files import Raw


class Update(Protocol):
    """A way to learn a new period. It is made of its settings, on every rank."""

    window: int = 1  # periods whose samples one pass takes together, the new one among them
    mixed: int = 1  # periods of which a step takes a batch each, at most
    least: int = 1  # periods that a stream must have

    def weights(self, job: Any, period: int) -> tuple[float, ...]:
        """Weights of the losses of a period, of the one before it, and so on; called on every rank.

        job: the TrainingJob, in the state before the period is trained. Where a job goes on within a period, this is
        asked again after `from_raw`, and must say what it said then.
        """
        return (1.0,)

    def to_raw(self) -> Raw | None:
        """What a checkpoint keeps of it (JSON data); None for nothing."""
        return None

    def from_raw(self, raw: Raw) -> None:
        """Go on from what a checkpoint kept, on every rank."""
