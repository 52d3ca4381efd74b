"""What a policy is trained on: hardware, and tasks of which size."""

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import TRAINING, PlacementTask, draw_placement_tasks, parse_size

CPU_BATCH, GPU_BATCH = 4096, 65_536  # samples of all devices and a step, as in `recsmith bench sharding`
TRAINING_SEED = 2  # of tasks; those that judge, and those of the benchmark, have others


@noun
class PolicySettings:
    """What is trained, beside the recipe: on which hardware, and tasks of which size. row: such as 4x50."""

    hardware: str
    row: str = "4x50"
    tasks: int = 50

    def __post_init__(self) -> None:
        """Check the size and the number."""
        parse_size(self.row)
        if self.tasks < 1:
            raise UsageError(f"tasks is {self.tasks}; training needs at least 1")

    def draw(self, number: int, seed: int = TRAINING_SEED, half: str = TRAINING) -> tuple[PlacementTask, ...]:
        """So many tasks of the size."""
        device, batch = device_name(self.hardware), batch_of(self.hardware)
        return draw_placement_tasks(parse_size(self.row), number, seed, device, batch, half).tasks


@noun
class PolicyRecipe:
    """How every kind of policy is trained; each kind adds fields of its own (Recipe in its file).

    episodes: placements of one task, of which an update of the policy learns. entropy: its weight beside the policy's
    loss. greed: how much a device's predicted seconds, relative to an even share, weigh in the first policy: nearly
    greedy; 1e-9 begins with an even chance of every device, as the papers do.
    """

    iterations: int = 15
    episodes: int = 16
    cost_rate: float = 2e-3
    policy_rate: float = 1e-3
    entropy: float = 1e-3
    seed: int = 0
    greed: float = 60.0


def batch_of(hardware: str) -> int:
    """Samples of all devices and a step."""
    return CPU_BATCH if hardware == "cpu" else GPU_BATCH


def device_name(hardware: str) -> str:
    """The device whose clusters tasks are placed on."""
    kind, _, source = hardware.partition(":")
    if kind == "cpu":
        return "cpu"
    if kind not in ("cuda", "simulated") or not source:
        raise UsageError(f"a policy learns on cpu, cuda:<gpu> or simulated:<gpu>[?noise=0.03], not '{hardware}'")
    return source.partition("?")[0]
