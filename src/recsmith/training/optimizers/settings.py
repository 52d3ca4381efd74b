"""The optimizers that a run file names, and schedules of their learning rates; building.py makes them."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules, outside
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName
from recsmith.workloads.patterns import fits

Stage = dict[str, Any]
NUMBERS = ("eps", "weight_decay", "beta1", "beta2")  # numeric settings of a table optimizer


def wrong_schedule(where: str, stages: tuple[Stage, ...]) -> Iterator[str]:
    """What is wrong with the stages of a schedule, as far as it can be seen without making their schedulers."""
    for at, stage in enumerate(stages):
        if not isinstance(stage.get("name"), str):
            yield f"{where}[{at}] has no `name`; give one of torch.optim.lr_scheduler, such as CosineAnnealingLR"
        steps = stage.get("steps")
        last = at == len(stages) - 1
        if last and steps is not None:
            yield f"{where}[{at}] is the last stage and has `steps`; it lasts until the run ends, so leave them out"
        if not last and not (type(steps) is int and steps > 0):
            yield f"{where}[{at}] has steps {steps!r}; say after how many the next stage begins, 1 or more"


def positive(name: str, value: float) -> str | None:
    """A rule of nouns: None if a number is above 0, otherwise what is wrong."""
    return None if value > 0 else f"{name} is {value}; it must be above 0"


@noun
class OptimizerRule:
    """The optimizer of some tables, or some of its settings, instead of those of all tables.

    tables: a table's name, or a pattern such as 'item*'; the first rule that matches a table counts. name: another
    optimizer, whose other settings then have its own defaults; none: the optimizer of all tables. learning_rate: their
    learning rate; a schedule scales it in the same proportion as the others. eps, weight_decay, beta1, beta2: their
    settings.
    """

    tables: str
    name: OptimizerName | None = None
    learning_rate: float | None = None
    eps: float | None = None
    weight_decay: float | None = None
    beta1: float | None = None
    beta2: float | None = None

    def __post_init__(self) -> None:
        where = f"optimizers.sparse.tables of '{self.tables}'"
        given = [each.name for each in fields(self) if each.name != "tables" and getattr(self, each.name) is not None]
        check_rules(
            None if given else f"{where} says nothing but the tables; give a name, a learning_rate or another setting",
            None if self.learning_rate is None else positive(f"{where}: learning_rate", self.learning_rate),
        )


@noun
class SparseOptimizer:
    """The optimizer of embedding tables, fused into their backward pass; equal ids of a batch are updated once.

    name: sgd, adagrad, rowwise_adagrad, or, only on GPUs, adam, lamb, partial_rowwise_adam. learning_rate: the rate
    before warm-up and decay. eps, beta1, beta2: as in torch.optim. weight_decay: decay of the rows that are looked up,
    as in torch.optim.AdamW, for adam, lamb and partial_rowwise_adam. A setting that an optimizer does not have is
    refused unless it has its default value. schedule: schedule of the learning rate: a list of schedulers of
    torch.optim.lr_scheduler, one after the other (docs/optimizers.md). tables: optimizers, learning rates and settings
    of some tables, by name.
    """

    name: OptimizerName = "rowwise_adagrad"
    learning_rate: float = 0.02
    eps: float = 1e-8
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    schedule: tuple[Stage, ...] = ()
    tables: tuple[OptimizerRule, ...] = ()

    def of(self, table: str | None) -> "SparseOptimizer":
        """The optimizer of one table, without `tables` rules, and with its learning rate before the schedule."""
        fit = (each for each in self.tables if table is not None and fits(each.tables, table))
        return self._under(next(fit, None))

    @property
    def names(self) -> tuple[OptimizerName, ...]:
        """The optimizers that tables may have, each once; the default comes first, unless a rule covers all tables."""
        own = () if any(each.tables == "*" for each in self.tables) else (self.name,)
        return tuple(dict.fromkeys((*own, *(each.name or self.name for each in self.tables))))

    def _under(self, rule: OptimizerRule | None) -> "SparseOptimizer":
        if rule is None:
            return replace(self, tables=())
        given = {each.name: getattr(rule, each.name) for each in fields(rule) if each.name != "tables"}
        given = {name: value for name, value in given.items() if value is not None}
        if given.get("name", self.name) == self.name:
            return replace(self, tables=(), **given)
        return SparseOptimizer(**{"learning_rate": self.learning_rate, "schedule": self.schedule, **given})

    def __post_init__(self) -> None:
        numbers = [each for each in fields(self) if each.name in NUMBERS]
        has, given = OPTIMIZERS[self.name].settings, {each.name: getattr(self, each.name) for each in numbers}
        odd = [each.name for each in numbers if each.name not in has and given[each.name] != each.default]
        check_rules(
            positive("optimizers.sparse.learning_rate", self.learning_rate),
            *(f"optimizers.sparse.{each} is {given[each]:g}, and {self.name} has none; leave it out" for each in odd),
            *(
                f"optimizers.sparse.{each} is {value:g}; it must be 0 or more" + below
                for each, value in given.items()
                if value < 0 or (each.startswith("beta") and value >= 1)
                for below in (", and below 1" if each.startswith("beta") else "",)
            ),
            *wrong_schedule("optimizers.sparse.schedule", self.schedule),
        )
        for rule in self.tables:
            try:
                self._under(rule)
            except UsageError as error:
                said = str(error).removeprefix("optimizers.sparse.")
                raise UsageError(f"optimizers.sparse.tables of '{rule.tables}': {said}") from None


@noun
class DenseOptimizer:
    """The optimizer of all other parameters.

    name: a class of torch.optim in upper or lower case, another component (docs/optimizers.md, docs/precision.md), or
    'module:Class'. learning_rate: the rate before warm-up and decay. arguments: other arguments of that class.
    clip_norm: gradients are scaled down to at most this norm. schedule: schedule of the learning rate, as for tables.
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    arguments: dict[str, Any] | None = None
    clip_norm: float | None = None
    schedule: tuple[Stage, ...] = ()

    def __post_init__(self) -> None:
        check_rules(
            positive("optimizers.dense.learning_rate", self.learning_rate),
            None if self.clip_norm is None else positive("optimizers.dense.clip_norm", self.clip_norm),
            *wrong_schedule("optimizers.dense.schedule", self.schedule),
        )


@noun
class DenseState:
    """Bytes of optimizer state of dense layers: on each rank (W,), and in total in a checkpoint.

    divided: whether ranks share the state among themselves. unknown: the optimizer's name, if its state is not known,
    so that Adam's is counted.
    """

    ranks: tuple[int, ...]
    saved: int
    divided: bool = False
    unknown: str = ""

    @property
    def note(self) -> str:
        """A sentence about what is not known; '' if everything is known."""
        if not self.unknown:
            return ""
        return f"what optimizers.dense {self.unknown} keeps of a weight is not known; as much as Adam keeps is counted"


@noun
class RunOptimizers:
    """Optimizers, and their learning rates: a linear rise over warmup_steps, then constant.

    sparse: optimizer of embedding tables. dense: optimizer of all other parameters. warmup_steps: steps of the rise.
    decay_start: step from which learning rates fall linearly to 0; none: the end of the warm-up. decay_steps: steps of
    the fall; none: they stay constant.
    """

    sparse: SparseOptimizer = SparseOptimizer()
    dense: DenseOptimizer = DenseOptimizer()
    warmup_steps: int = 0
    decay_start: int | None = None
    decay_steps: int | None = None

    def __post_init__(self) -> None:
        """Check that decay comes after warm-up."""
        start = self.warmup_steps if self.decay_start is None else self.decay_start
        check_rules(
            outside("optimizers.warmup_steps", self.warmup_steps),
            outside("optimizers.decay_start", self.decay_start),
            None if start >= self.warmup_steps else "optimizers.decay_start lies within the warm-up; start it after",
            outside("optimizers.decay_steps", self.decay_steps, 1),
            "optimizers has a schedule beside warmup_steps or decay_steps; write a stage of LinearLR for these"
            if (self.sparse.schedule or self.dense.schedule) and (self.warmup_steps or self.decay_steps)
            else None,
            "optimizers.sparse.tables stands beside warmup_steps or decay_steps; write optimizers.sparse.schedule "
            "in place of these"
            if self.sparse.tables and (self.warmup_steps or self.decay_steps)
            else None,
        )
