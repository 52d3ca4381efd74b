"""What a plan costs: the parts of a step on every device, and the bound it is held against."""

from recsmith._types import noun
from recsmith.errors import UsageError

PARTS = ("forward_compute_s", "backward_compute_s", "forward_comm_s", "backward_comm_s")


LONGEST_S = 1e30  # seconds: beyond what any legal workload takes on any legal cluster; larger ones would overflow


def _check_seconds(value: float, what: str) -> None:
    if not 0 <= value <= LONGEST_S:
        raise UsageError(f"{what} is {value}; it must lie between 0 and {LONGEST_S:g} seconds")


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

    def __post_init__(self) -> None:
        """Check seconds and bytes, which reports divide by each other."""
        for part in (*PARTS, "wait_s"):
            _check_seconds(getattr(self, part), f"{part} of rank {self.rank}")
        if self.hbm_bytes < 0 or self.hbm_capacity_bytes < 1:
            raise UsageError(
                f"rank {self.rank} uses {self.hbm_bytes} of {self.hbm_capacity_bytes} bytes; it must use 0 or more of "
                "at least 1"
            )

    @property
    def busy_s(self) -> float:
        """Seconds that the rank is not waiting."""
        return self.forward_compute_s + self.backward_compute_s + self.forward_comm_s + self.backward_comm_s


@noun
class StepCost:
    """Seconds of a training step's embedding part, and where they go."""

    total_s: float
    per_device: tuple[DeviceCost, ...]

    def __post_init__(self) -> None:
        """Check the seconds."""
        _check_seconds(self.total_s, "total_s")

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

    def __post_init__(self) -> None:
        """Check the seconds."""
        if self.value_s is not None:
            _check_seconds(self.value_s, "value_s of the bound")

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
