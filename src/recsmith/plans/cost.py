"""What a plan costs: the parts of a step on every device, and the bound it is held against."""

from recsmith._types import noun
from recsmith.errors import UsageError

PARTS = ("forward_compute_s", "backward_compute_s", "forward_comm_s", "backward_comm_s")


@noun
class DeviceCost:
    """Seconds that a rank spends in each part of a step, and its memory; parts and wait add up to the step."""

    rank: int
    forward_compute_s: float
    backward_compute_s: float
    forward_comm_s: float
    backward_comm_s: float
    wait_s: float
    hbm_bytes: int
    hbm_capacity_bytes: int

    @property
    def busy_s(self) -> float:
        """Seconds that the rank is not waiting."""
        return self.forward_compute_s + self.backward_compute_s + self.forward_comm_s + self.backward_comm_s


@noun
class StepCost:
    """Seconds of a training step's embedding part, and where they go."""

    total_s: float
    per_device: tuple[DeviceCost, ...]

    @property
    def mean_s(self) -> float:
        """Mean busy seconds of the devices: total over mean is the imbalance."""
        return sum(device.busy_s for device in self.per_device) / len(self.per_device)

    @property
    def overfull(self) -> tuple[DeviceCost, ...]:
        """Devices that need more memory than they have."""
        return tuple(device for device in self.per_device if device.hbm_bytes > device.hbm_capacity_bytes)


@noun
class Bound:
    """No plan in the stated space costs less than value_s (None: the cost model gives no bound).

    kind: how it was proved; 'exact: ...' by a search. space: the words of the space it holds for.
    """

    value_s: float | None
    kind: str
    space: str

    @property
    def searched(self) -> bool:
        """Whether a search proved it, so that pricing the plan again does not."""
        return self.kind.startswith("exact: ")

    def gap(self, total_s: float) -> float | None:
        """How far a plan of this cost can be from the best: total / bound - 1; None where nothing bounds it."""
        if self.value_s is None:
            return None
        if total_s < self.value_s * (1 - 1e-9):
            raise UsageError(
                f"a plan of {total_s} s lies below its bound of {self.value_s} s: the plan is not in the space"
            )
        if self.value_s == 0:
            return 0.0 if total_s == 0 else None
        return max(0.0, total_s / self.value_s - 1)
