"""Training of learned planners: what is trained on which tasks and hardware, and how far it is (docs/learned.md).

tasks.py        tasks of the shared pool, tables of training and of test apart
own_tables.py   tables of a user's jobs in its place
measured.py     what placements of tasks cost on hardware
environment.py  the placement environment under Gymnasium's interface
networks.py     the networks with gradients, and what trainings share (imports torch)
dreamshard.py   DreamShard, from top to bottom (imports torch)
autoshard.py    AutoShard, from top to bottom (imports torch)
actors.py       its actors: what they do; started, asked, replaced when lost
splits.py       what is split: search, imitation, REINFORCE (imports torch)
learn.py        trains, judges on unseen tasks, writes the policy; the run's folder
"""

from typing import ClassVar

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import TRAINING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.workloads import Table

SPLIT_SIZES = (
    *(f"{devices}x{tables}" for devices in (2, 4, 8) for tables in (20, 50, 100, 200)),
    *("16x100", "16x200", "32x200", "32x400"),
)  # of tasks that teach what to split
CPU_BATCH, GPU_BATCH = 4096, 65_536  # samples of all devices and a step, as in `recsmith bench sharding`
SPLITS_PRICED_BY, CPU_PRICED_BY = "neural:simulated-h100", "neural:cpu"  # cost models of what is split, and on a CPU
TRAINING_SEED = 2  # of tasks; those that judge, and those of the benchmark, have others


@noun
class PolicySettings:
    """What is trained, beside the recipe: on which hardware, and tasks of which size. row: such as 4x50.

    own: a file or folder of the tables that tasks are drawn from; None: the shared pool. digest: of these tables.
    """

    hardware: str
    row: str = "4x50"
    tasks: int = 50
    own: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        """Check the size and the number."""
        parse_size(self.row)
        if self.tasks < 1:
            raise UsageError(f"tasks is {self.tasks}; training needs at least 1")

    def draw(self, number: int, seed: int = TRAINING_SEED, half: str = TRAINING) -> tuple[PlacementTask, ...]:
        """So many tasks of the size."""
        device, batch = device_name(self.hardware), batch_of(self.hardware)
        return draw_placement_tasks(parse_size(self.row), number, seed, device, batch, half, _tables(self.own)).tasks


@noun
class PolicyRecipe:
    """How every kind of policy is trained; each kind adds fields of its own .

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


@noun
class DreamShardRecipe(PolicyRecipe):
    """How DreamShard is trained. reward: 'estimated' by the cost network, or 'measured' (the paper's ablation).

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
    """How far a training of DreamShard is.

    error: of predicted costs of devices, median. entropy: of the policy, mean of a step.
    measured_s, estimated_s: of the placements measured in it, and of the last policy updates, means. dead: share of
    episodes that came to a dead end.
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
    """On what a policy of what is split learns. sizes: of tasks, as 4x50; tasks: of each size; device: of clusters.

    own: a file or folder of the tables that tasks are drawn from; None: the shared pool. digest: of these tables.
    """

    cost_model: str = SPLITS_PRICED_BY
    device: str = "h100"
    sizes: tuple[str, ...] = SPLIT_SIZES
    tasks: int = 4
    own: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        """Check sizes and the number."""
        for size in self.sizes:
            parse_size(size)
        if not self.sizes:
            raise UsageError("sizes are none; name one or more, such as 4x50,8x100")
        if self.tasks < 1:
            raise UsageError(f"tasks is {self.tasks}; training needs at least 1 of each size")

    def draw(self, number: int, seed: int = TRAINING_SEED, half: str = TRAINING) -> tuple[PlacementTask, ...]:
        """So many tasks of each size."""
        batch, own = batch_of(self.device), _tables(self.own)
        drawn = (
            draw_placement_tasks(parse_size(size), number, seed, self.device, batch, half, own) for size in self.sizes
        )
        return tuple(task for each in drawn for task in each.tasks)


@noun
class SplitRecipe:
    """How the policy of what is split is trained (splits.py).

    searched: tasks of an iteration: so many episodes (width) by rules, as drawn, and in each of some rounds near the
    best one. imitation: updates of an iteration that imitate what was found, of so many decisions (batch); 0 leaves
    search and imitation out. updates: of REINFORCE, of so many episodes of a task each. entropy: its weight.
    least_spread: of what a task's episodes earn; smaller differences count less.
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
    """How far it is. searched, drawn: what episodes earned that were searched and drawn, as shares of the step.

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
    """How AutoShard is trained. actors: processes that place and measure.

    answers: of an iteration, each of them one task in so many episodes, and one update of the policy. cost_updates: for
    each answer, of so many shards; slots: of the ring buffer. baseline: its weight beside the policy's loss. longest:
    gradients are cut there.
    """

    answers: int = 14
    cost_updates: int = 20
    shards: int = 128
    slots: int = 5000
    baseline: float = 0.5
    longest: float = 1.0
    actors: int = 2
    reward: ClassVar[str] = "measured"  # what episodes cost

    def __post_init__(self) -> None:
        """Check the number of actors."""
        if not 1 <= self.actors <= 64:
            raise UsageError(f"actors is {self.actors}; give 1 to 64, not more than there are cores")


@noun
class AutoShardIteration:
    """How far a training of AutoShard is.

    error: of predicted costs of devices, median. entropy: of the policy, mean of a step.
    measured_s: of the placements measured in it, mean. value_error: of the baseline, in spreads of a task's episodes.
    ratio: mean of how far chances of actors and learner are apart. dead: share of episodes that came to a dead end.
    lost: actors that were replaced so far, in this run.
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
