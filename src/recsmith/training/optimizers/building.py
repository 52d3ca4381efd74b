"""Makes the optimizers of a run: fused ones for sharded tables, unfused ones for copied tables, torch's for others."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.clipping import GradientClipping, GradientClippingOptimizer
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import Adam as FbgemmAdam
from torchrec.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

from recsmith._components import load
from recsmith.prediction.dense_shapes import Shapes, numbers_of
from recsmith.training.optimizers.dense import dense_class, dense_optimizer, prepare_weights
from recsmith.training.optimizers.scheduled import ScheduledOptimizer
from recsmith.training.optimizers.schedules import Rates
from recsmith.training.optimizers.settings import DenseOptimizer, DenseState, RunOptimizers, SparseOptimizer
from recsmith.training.seams.registry import first_of, systems, trains_layers
from recsmith.training.tables.protocol import table_of
from recsmith.workloads.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from recsmith.training.run.run import Run


def fuse(parameters: Iterable[tuple[str | None, nn.Parameter]], optimizer: SparseOptimizer) -> None:
    """Set tables' parameters to be updated in their backward pass once they are sharded.

    TorchRec passes arguments to FBGEMM unchanged, which takes beta1 and beta2 separately; torch's Adam would not accept
    them in this form.
    """
    for own, group in by_optimizer(parameters, optimizer).items():
        made, kind = sparse_arguments(own), table_class(own.name)
        if "betas" in made:
            made["beta1"], made["beta2"] = made.pop("betas")
            kind = FbgemmAdam if kind is torch.optim.Adam else kind  # TorchRec's Adam class stands for FBGEMM's
        apply_optimizer_in_backward(kind, group, made)


def by_optimizer(
    parameters: Iterable[tuple[str | None, nn.Parameter]], optimizer: SparseOptimizer
) -> dict[SparseOptimizer, list[nn.Parameter]]:
    """The parameters of tables, grouped by their optimizers, each with its rate and settings, without its schedule."""
    found: dict[SparseOptimizer, list[nn.Parameter]] = {}
    for table, parameter in parameters:
        found.setdefault(replace(optimizer.of(table), schedule=()), []).append(parameter)
    return found


def copied_optimizer(parameters: Mapping[str, nn.Parameter], optimizer: SparseOptimizer) -> KeyedOptimizer:
    """The optimizer of tables that every rank has a copy of: one class for each optimizer name among them."""
    names = {id(each): name for name, each in parameters.items()}
    groups: dict[str, list[tuple[SparseOptimizer, list[nn.Parameter]]]] = {}
    for own, group in by_optimizer(((table_of(name), each) for name, each in parameters.items()), optimizer).items():
        groups.setdefault(own.name, []).append((own, group))

    def made(kind: str, some: list[tuple[SparseOptimizer, list[nn.Parameter]]]) -> KeyedOptimizer:
        mine = {names[id(each)]: each for _, group in some for each in group}
        given = [{"params": group, **sparse_arguments(own)} for own, group in some]
        return KeyedOptimizerWrapper(mine, lambda _: table_class(kind)(given, **sparse_arguments(some[0][0])))

    parts = [made(kind, some) for kind, some in groups.items()]
    return parts[0] if len(parts) == 1 else CombinedOptimizer([("", each) for each in parts])


def table_class(name: str) -> type[torch.optim.Optimizer]:
    """The unfused class of a table optimizer."""
    return cast(type[torch.optim.Optimizer], load(OPTIMIZERS[name].torch_class))


def sparse_arguments(optimizer: SparseOptimizer) -> dict[str, Any]:
    """Keyword arguments of the optimizer's class."""
    made: dict[str, Any] = {"lr": optimizer.learning_rate}
    given = OPTIMIZERS[optimizer.name].settings
    if "eps" in given:
        made["eps"] = optimizer.eps
    if "beta1" in given:
        made["betas"] = (optimizer.beta1, optimizer.beta2)
    if "weight_decay" in given:
        made["weight_decay"] = optimizer.weight_decay
    return made


def combined_optimizer(
    fused: KeyedOptimizer, copied: dict[str, nn.Parameter], dense: dict[str, nn.Parameter], optimizers: RunOptimizers,
    across: dict[nn.Parameter, list[Any]] | None = None,
) -> CombinedOptimizer:  # fmt: skip
    """One optimizer of three: `sparse` (fused), `copied` (tables with a copy on every rank) and `dense`.

    Each follows the schedule of its learning rates. across: dense parameters for which other ranks have different ones,
    and the groups over which a gradient norm must sum them.
    """
    sparse, plain = optimizers.sparse, optimizers.dense
    parts: list[Any] = [("sparse", scheduled(fused, "sparse", optimizers))] if fused.params else []
    if copied:
        parts.append(("copied", scheduled(copied_optimizer(copied, sparse), "sparse", optimizers)))
    if dense:
        made: KeyedOptimizer = KeyedOptimizerWrapper(dense, lambda ps: dense_optimizer(ps, plain))
        if plain.clip_norm is not None:
            made = GradientClippingOptimizer(
                made, GradientClipping.NORM, plain.clip_norm, enable_global_grad_clip=bool(across), param_to_pgs=across
            )
        parts.append(("dense", scheduled(made, "dense", optimizers)))
    made = CombinedOptimizer(parts)
    made.save_param_groups(False)  # learning rates follow from the run and the step, so they are not saved
    return made


def scheduled(
    optimizer: KeyedOptimizer, group: Literal["sparse", "dense"], optimizers: RunOptimizers
) -> KeyedOptimizer:
    """The optimizer with its schedule, or with warm-up and decay; unchanged if the run has neither."""
    given = getattr(optimizers, group)
    if given.schedule:
        rates = Rates(given.learning_rate, given.schedule, f"optimizers.{group}.schedule")
        return ScheduledOptimizer(optimizer, rates)
    stages = _stages(optimizers)
    return WarmupOptimizer(optimizer, stages, lr=given.learning_rate) if stages else optimizer


def set_schedule(optimizer: CombinedOptimizer, step: int) -> None:
    """Set learning rates to those after `step` steps; TorchRec does not save the schedules of fused optimizers."""
    for _, part in optimizer.optimizers:
        if isinstance(part, ScheduledOptimizer):
            part.go_to(step)
        if isinstance(part, WarmupOptimizer):
            stage = next(number for number, each in enumerate(part._stages) if step <= each.max_iters)
            part.state[part._warmup_param] = {"warmup": torch.tensor([step, stage], dtype=torch.long)}  # type: ignore[index]
            part._set_lr(step, stage)


def _stages(optimizers: RunOptimizers) -> list[WarmupStage]:
    """Stages of warm-up and decay, each ending at step `max_iters`."""
    warm, decay = optimizers.warmup_steps, optimizers.decay_steps
    made: list[WarmupStage] = []
    if warm:
        made.append(WarmupStage(policy=WarmupPolicy.LINEAR, max_iters=warm, value=1 / warm))
    if decay:
        start = warm if optimizers.decay_start is None else optimizers.decay_start
        if start > warm:
            made.append(WarmupStage(policy=WarmupPolicy.CONSTANT, max_iters=start, value=1.0))
        fall = {"start_interpolating_iters": start, "value": 1.0, "end_value": 0.0}
        made.append(WarmupStage(policy=WarmupPolicy.INTERPOLATE, max_iters=start + decay, **fall))
        made.append(WarmupStage(policy=WarmupPolicy.CONSTANT, max_iters=1 << 62, value=0.0))
    return made


def dense_state(run: "Run", shapes: Shapes, ranks: int) -> DenseState:
    """The state that the optimizer of a run's dense layers keeps, or that the step keeps if it trains them itself."""
    optimizer = run.optimizers.dense
    if trains_layers(run):
        kept = first_of(each.layer_state(run, numbers_of(shapes)) for each in systems()) or 0
        return DenseState(ranks=(kept,) * ranks, saved=0)
    by_shapes = getattr(dense_class(optimizer.name), "state_of_ranks", None)
    if by_shapes is not None:
        divided = by_shapes(shapes, ranks, optimizer.arguments or {})
        return DenseState(ranks=tuple(divided), saved=sum(divided), divided=ranks > 1)
    kept = round(numbers_of(shapes) * state_bytes(optimizer))
    unknown = optimizer.name if ":" in optimizer.name else ""
    return DenseState(ranks=(kept,) * ranks, saved=kept, unknown=unknown)


SIDE = 8  # rows and columns of the test weight whose state is measured


def state_bytes(optimizer: DenseOptimizer) -> float:
    """Bytes of state that an optimizer keeps for each dense weight, measured with one step on a small weight.

    Adam's bytes are returned for an optimizer whose state depends on shapes, and for one of yours.
    """
    if hasattr(dense_class(optimizer.name), "state_of_ranks") or ":" in optimizer.name:
        return state_bytes(DenseOptimizer())
    weight = torch.nn.Parameter(torch.zeros(SIDE, SIDE))
    prepare_weights([weight], optimizer)
    made = dense_optimizer([weight], optimizer)
    weight.grad = torch.zeros_like(weight)
    made.step()
    kept = [each for state in made.state.values() for each in state.values() if isinstance(each, torch.Tensor)]
    return sum(each.nbytes for each in kept if each.numel() >= SIDE**2) / SIDE**2
