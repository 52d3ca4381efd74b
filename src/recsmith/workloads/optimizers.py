"""The sparse optimizers of TorchRec: their classes, their settings, and the states that each keeps besides weights.

Everything that RecSmith knows about a table optimizer is in this module, so that a new one is added in one place.
"""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb"]
# one number for each weight, for each row of a shard, or in all
StateShape = Literal["element-wise", "row-wise", "scalar"]


@noun
class Optimizer:
    """A sparse optimizer that FBGEMM fuses into the backward kernel.

    Args:
        name: its name in RecSmith.
        torch_class: its class without fusion, 'module:Class', from which apply_optimizer_in_backward derives the fused
            one.
        fbgemm_name: its name in EmbOptimType; other_names: further names, in lower case.
        settings: its settings in addition to the learning rate. weight_decay is FBGEMM's, which shrinks the rows that
            are
            looked up, separately from the gradient.
        fused_states: fp32 states that FBGEMM keeps, by name. Each column shard keeps its own row-wise states, and so
            trains
            differently from the unsharded table.
        copied_states: states that the class without fusion keeps, for tables replicated on every rank.
        on_cpu: FBGEMM's CPU kernels implement it, so that it can be measured and verified without a GPU.
        copies: it trains replicated tables as it trains sharded ones: without fusion, it leaves rows unchanged that are
            not looked up.
        splits: it trains tables whose rows are stored as two halves of 16 bits (`rows: split` of a run).
    """

    name: OptimizerName
    torch_class: str
    fbgemm_name: str
    other_names: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    fused_states: dict[str, StateShape]
    copied_states: dict[str, StateShape]
    on_cpu: bool = False
    copies: bool = True
    splits: bool = False

    @property
    def element_states(self) -> int:
        """Numbers of optimizer state for each weight."""
        return sum(shape == "element-wise" for shape in self.fused_states.values())

    @property
    def row_states(self) -> int:
        """Numbers of optimizer state for each row of a shard."""
        return sum(shape == "row-wise" for shape in self.fused_states.values())

    @property
    def is_row_wise(self) -> bool:
        """Whether the optimizer keeps a statistic for each row of a shard."""
        return self.row_states > 0


_EPS, _ADAM = ("eps",), ("eps", "beta1", "beta2", "weight_decay")
OPTIMIZERS: dict[str, Optimizer] = {
    each.name: each
    for each in (
        Optimizer(
            name="sgd", torch_class="torch.optim:SGD", fbgemm_name="EXACT_SGD", other_names=("exact_sgd",),
            fused_states={}, copied_states={}, on_cpu=True, splits=True,
        ),
        Optimizer(
            name="adagrad", torch_class="torch.optim:Adagrad", fbgemm_name="EXACT_ADAGRAD",
            other_names=("exact_adagrad",), settings=_EPS, fused_states={"momentum1": "element-wise"},
            copied_states={"step": "scalar", "sum": "element-wise"}, on_cpu=True,
        ),
        Optimizer(
            name="rowwise_adagrad", torch_class="torchrec.optim:RowWiseAdagrad", fbgemm_name="EXACT_ROWWISE_ADAGRAD",
            other_names=("exact_rowwise_adagrad", "exact_row_wise_adagrad"), settings=_EPS,
            fused_states={"momentum1": "row-wise"}, copied_states={"step": "scalar", "sum": "row-wise"}, on_cpu=True,
            splits=True,
        ),
        Optimizer(
            name="partial_rowwise_adam", torch_class="torchrec.optim:PartialRowWiseAdam",
            fbgemm_name="PARTIAL_ROWWISE_ADAM", other_names=("partial_row_wise_adam",), settings=_ADAM,
            fused_states={"momentum1": "element-wise", "exp_avg_sq": "row-wise"},
            copied_states={"step": "scalar", "exp_avg": "element-wise", "exp_avg_sq": "row-wise"}, copies=False,
        ),
        Optimizer(
            name="adam", torch_class="torch.optim:Adam", fbgemm_name="ADAM", settings=_ADAM,
            fused_states={"momentum1": "element-wise", "exp_avg_sq": "element-wise"},
            copied_states={"step": "scalar", "exp_avg": "element-wise", "exp_avg_sq": "element-wise"}, copies=False,
        ),
        Optimizer(
            name="lamb", torch_class="torchrec.optim:LAMB", fbgemm_name="LAMB", settings=_ADAM,
            fused_states={"momentum1": "element-wise", "exp_avg_sq": "element-wise"},
            copied_states={"step": "scalar", "exp_avg": "element-wise", "exp_avg_sq": "element-wise"}, copies=False,
        ),
    )
}  # fmt: skip
CPU_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(each.name for each in OPTIMIZERS.values() if each.on_cpu)
COPYING_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(each.name for each in OPTIMIZERS.values() if each.copies)
SPLIT_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(each.name for each in OPTIMIZERS.values() if each.splits)
# optimizers whose state TorchRec averages over replicas: none, or `sum`
SYNCED_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(
    each.name for each in OPTIMIZERS.values() if set(each.copied_states) <= {"step", "sum"}
)
OPTIMIZER_NAMES: tuple[str, ...] = tuple(OPTIMIZERS)  # arrays hold optimizers as indices into this tuple


def named_optimizer(word: str) -> Optimizer | None:
    """The optimizer with this name in RecSmith or FBGEMM, in upper or lower case; None if there is none."""
    low = word.lower()
    return next((each for each in OPTIMIZERS.values() if low == each.name or low in each.other_names), None)


def find_optimizer(name: str) -> Optimizer:
    """The optimizer with this RecSmith name; UsageError that suggests the nearest name if there is none."""
    if name not in OPTIMIZERS:
        raise UsageError(f"no optimizer is called '{name}'{did_you_mean(name, list(OPTIMIZERS))}")
    return OPTIMIZERS[name]
