"""The sparse optimizers of TorchRec: where their code is, what they are told, and what each keeps beside the weights.

Everything that RecSmith knows of an optimizer of tables stands here, so that another one enters in one place.
"""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb"]
StateShape = Literal["element-wise", "row-wise", "scalar"]  # a number for each weight, for each row of a shard, or one


@noun
class Optimizer:
    """A sparse optimizer that FBGEMM fuses into the backward kernel.

    Args:
        name: RecSmith's name of it.
        torch_class: its class without fusion, 'module:Class'; apply_optimizer_in_backward takes it for the fused one.
        fbgemm_name: of EmbOptimType; other_names: further ones, in lower case.
        settings: what it is told beside its learning rate. weight_decay is FBGEMM's, which shrinks rows that are looked
            up, apart from the gradient.
        fused_states: fp32 numbers that FBGEMM keeps, by name. Column shards keep row-wise ones each, and so train
            differently from the unsharded table.
        copied_states: what the class without fusion keeps, of tables that every rank has whole.
        on_cpu: FBGEMM's CPU kernels train it, so that it can be measured and verified without a GPU.
        copies: it trains tables that every rank has whole as it trains sharded ones: without fusion it leaves rows
            alone that are not looked up.
        splits: it trains tables whose rows lie in two halves of 16 bits (`rows: split` of a run).
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
        """Numbers that it keeps for each weight."""
        return sum(shape == "element-wise" for shape in self.fused_states.values())

    @property
    def row_states(self) -> int:
        """Numbers that it keeps for each row of a shard."""
        return sum(shape == "row-wise" for shape in self.fused_states.values())

    @property
    def is_row_wise(self) -> bool:
        """Whether it keeps a statistic of each row of a shard."""
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
SYNCED_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(  # whose state TorchRec averages over replicas: none, or `sum`
    each.name for each in OPTIMIZERS.values() if set(each.copied_states) <= {"step", "sum"}
)
OPTIMIZER_NAMES: tuple[str, ...] = tuple(OPTIMIZERS)  # arrays hold places in it


def named_optimizer(word: str) -> Optimizer | None:
    """The optimizer of RecSmith's name or of FBGEMM's, in upper or lower case; None where there is none."""
    low = word.lower()
    return next((each for each in OPTIMIZERS.values() if low == each.name or low in each.other_names), None)


def find_optimizer(name: str) -> Optimizer:
    """The optimizer of RecSmith's name; UsageError with the nearest one where there is none."""
    if name not in OPTIMIZERS:
        raise UsageError(f"no optimizer is called '{name}'{did_you_mean(name, list(OPTIMIZERS))}")
    return OPTIMIZERS[name]
