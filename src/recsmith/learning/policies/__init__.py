"""Training of learned planners: the tasks and hardware that they are trained on, and the progress (docs/learned.md).

tasks.py        tasks of the shared pool, with separate tables for training and for test own_tables.py   tables of a
user's jobs, instead of the shared pool measured.py     costs of placements, measured on hardware environment.py  the
placement environment under Gymnasium's interface networks.py     the networks with gradients, and shared parts of the
trainings (imports torch) dreamshard.py   DreamShard, from top to bottom (imports torch) autoshard.py    AutoShard, from
top to bottom (imports torch) actors.py       the processes that place and measure for AutoShard; lost ones are replaced
splits.py       the policy that decides which tables are split: search, imitation, REINFORCE (imports torch) learn.py
trains, judges on unseen tasks, writes the policy; the run's folder
"""

from typing import ClassVar

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import TRAINING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.workloads import Table

SPLIT_SIZES = (
    *(f"{devices}x{tables}" for devices in (2, 4, 8) for tables in (20, 50, 100, 200)),
    *("16x100", "16x200", "32x200", "32x400"),
)  # sizes of the tasks on which the policy of splits is trained
CPU_BATCH, GPU_BATCH = 4096, 65_536  # samples of all devices in a step, as in `recsmith bench sharding`
SPLITS_PRICED_BY, CPU_PRICED_BY = "neural:simulated-h100", "neural:cpu"  # cost models of splits, and on a CPU
TRAINING_SEED = 2  # seed of training tasks; those that judge, and those of the benchmark, have others


@noun
class PolicySettings:
    """Settings of a training besides its recipe: hardware, and tasks. row: size of the tasks, such as 4x50.

    own: a file or folder of the tables that tasks are drawn from; None: the shared pool. digest: of these tables.
    """

    hardware: str
    row: str = "4x50"
    tasks: int = 50
    own: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        """Check the size and the number of tasks."""
        parse_size(self.row)
        if self.tasks < 1:
            raise UsageError(f"tasks is {self.tasks}; training needs at least 1")

    def draw(self, number: int, seed: int = TRAINING_SEED, half: str = TRAINING) -> tuple[PlacementTask, ...]:
        """Draw this many tasks of the size."""
        device, batch = device_name(self.hardware), batch_of(self.hardware)
        return draw_placement_tasks(parse_size(self.row), number, seed, device, batch, half, _tables(self.own)).tasks


@noun
class PolicyRecipe:
    """Settings that all kinds of policies share; each kind adds fields of its own.

    episodes: placements of one task for each update of the policy. entropy: weight of the entropy in the policy's loss.
    greed: weight of a device's predicted seconds, relative to an even share, in the first policy: nearly greedy; 1e-9
    begins with equal chances of all devices, as the papers do.
    """

    iterations: int = 15
    episodes: int = 16
    cost_rate: float = 2e-3
    policy_rate: float = 1e-3
    entropy: float = 1e-3
    seed: int = 0
    greed: float = 60.0


@noun
class DreamShardRecipe(PolicyRecipe):
    """Settings of DreamShard's training. reward: 'estimated' by the cost network, or 'measured' (the paper's ablation).

    placements: measured in an iteration. cost_updates, policy_updates: of an iteration. batch: placements of a cost
    update.
    """

    placements: int = 40
    cost_updates: int = 300
    batch: int = 32
    policy_updates: int = 60
    reward: str = "estimated"


@noun
class DreamShardIteration:
    """Progress of a training of DreamShard.

    error: of predicted costs of devices, median. entropy: of the policy, mean of a step. measured_s, estimated_s: mean
    seconds of a step, of the placements measured in this iteration, and of the last policy updates. dead: share of
    episodes that ended in a dead end.
    """

    number: int
    iterations: int
    measured: int
    measured_s: float
    estimated_s: float
    error: float
    entropy: float
    dead: float
    elapsed_s: float


@noun
class SplitSettings:
    """Tasks and prices for the policy of splits. sizes: of tasks, as 4x50; tasks: of each size; device: of clusters.

    own: a file or folder of the tables that tasks are drawn from; None: the shared pool. digest: of these tables.
    """

    cost_model: str = SPLITS_PRICED_BY
    device: str = "h100"
    sizes: tuple[str, ...] = SPLIT_SIZES
    tasks: int = 4
    own: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        """Check sizes and the number of tasks."""
        for size in self.sizes:
            parse_size(size)
        if not self.sizes:
            raise UsageError("sizes are none; name one or more, such as 4x50,8x100")
        if self.tasks < 1:
            raise UsageError(f"tasks is {self.tasks}; training needs at least 1 of each size")

    def draw(self, number: int, seed: int = TRAINING_SEED, half: str = TRAINING) -> tuple[PlacementTask, ...]:
        """Draw this many tasks of each size."""
        batch, own = batch_of(self.device), _tables(self.own)
        drawn = (
            draw_placement_tasks(parse_size(size), number, seed, self.device, batch, half, own) for size in self.sizes
        )
        return tuple(task for each in drawn for task in each.tasks)


@noun
class SplitRecipe:
    """Settings of the training of the policy of splits (splits.py).

    searched: tasks of an iteration. Each has `width` episodes by rules, as many drawn from the policy, and as many in
    each of `rounds` rounds near the best one. imitation: updates of an iteration that imitate the best episodes, of
    `batch` decisions each; 0 leaves search and imitation out. updates: of REINFORCE, of `episodes` episodes of a task
    each. entropy: weight of the entropy in the loss. least_spread: of the gains of a task's episodes; smaller
    differences count less.
    """

    iterations: int = 12
    searched: int = 32
    width: int = 16
    rounds: int = 4
    imitation: int = 300
    batch: int = 256
    updates: int = 40
    episodes: int = 16
    rate: float = 3e-3
    entropy: float = 1e-2
    least_spread: float = 0.01
    seed: int = 0


@noun
class SplitIteration:
    """Progress of a training of splits. searched, drawn: mean gains of such episodes, as shares of the step.

    imitated: loss of a decision.
    """

    number: int
    iterations: int
    searched: float
    imitated: float
    drawn: float
    elapsed_s: float


@noun
class AutoShardRecipe(PolicyRecipe):
    """Settings of AutoShard's training. actors: processes that place and measure.

    answers: of an iteration; each is one task in `episodes` episodes, and one update of the policy. cost_updates: for
    each answer, of `shards` shards; slots: of the ring buffer. baseline: weight of the baseline's loss. longest: norm
    to which gradients are clipped.
    """

    answers: int = 14
    cost_updates: int = 20
    shards: int = 128
    slots: int = 5000
    baseline: float = 0.5
    longest: float = 1.0
    actors: int = 2
    reward: ClassVar[str] = "measured"  # the cost of episodes

    def __post_init__(self) -> None:
        """Check the number of actors."""
        if not 1 <= self.actors <= 64:
            raise UsageError(f"actors is {self.actors}; give 1 to 64, not more than there are cores")


@noun
class AutoShardIteration:
    """Progress of a training of AutoShard.

    error: of predicted costs of devices, median. entropy: of the policy, mean of a step. measured_s: mean seconds of a
    step of the placements measured in this iteration. value_error: of the baseline, in spreads of a task's episodes.
    ratio: mean relative difference of the chances of actors and learner. dead: share of episodes that ended in a dead
    end. lost: number of actors that were replaced in this run so far.
    """

    number: int
    iterations: int
    measured: int
    measured_s: float
    error: float
    entropy: float
    value_error: float
    ratio: float
    dead: float
    lost: int
    elapsed_s: float


def _tables(own: str | None) -> tuple[Table, ...] | None:
    from recsmith.learning.policies.own_tables import own_tables

    return None if own is None else own_tables(own)


def batch_of(hardware: str) -> int:
    """Samples of all devices in a step."""
    return CPU_BATCH if hardware == "cpu" else GPU_BATCH


def device_name(hardware: str) -> str:
    """The device for whose clusters tasks are drawn."""
    kind, _, source = hardware.partition(":")
    if kind == "cpu":
        return "cpu"
    if kind not in ("cuda", "simulated") or not source:
        raise UsageError(f"a policy learns on cpu, cuda:<gpu> or simulated:<gpu>[?noise=0.03], not '{hardware}'")
    return source.partition("?")[0]
