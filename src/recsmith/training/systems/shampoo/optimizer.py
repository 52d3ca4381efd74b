"""Distributed Shampoo for dense layers: gradients times inverse roots of their second moments, on both sides.

    optimizers: {dense: {name: shampoo, learning_rate: 0.001}}

Shi et al. 2023 (arXiv 2309.06497): a layer is cut into blocks. For a block with gradient G (m, n), the statistics L =
sum G G^T (m, m) and R = sum G^T G (n, n) are kept. The block moves in the direction L^(-1/4) G R^(-1/4), as far as the
grafted method (Adam or Adagrad) would move it. Every rank owns some blocks, keeps their state and computes their
directions, which all ranks then gather.

m rows and n columns of a block, W ranks
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.distributed as dist

from recsmith.errors import UsageError
from recsmith.training.step_clock import Stopwatch
from recsmith.training.systems.shampoo.blocks import ADAM, Block, ShampooSettings, blocks_of, owners, state_of_ranks


class ShampooOptimizer(torch.optim.Optimizer):
    """Shampoo on blocks that ranks own.

    params: fp32 parameters. lr: the learning rate, as for the grafted method. settings: of ShampooSettings.

    Raises:
        UsageError: a setting is out of range, or a parameter is not fp32 (or fp64).
    """

    described_by = (ShampooSettings,)

    def __init__(self, params: Any, lr: float, **settings: Any) -> None:
        self.settings = ShampooSettings.of(settings)
        super().__init__(params, {"lr": lr})
        self._parameters = [each for group in cast(list[Any], self.param_groups) for each in group["params"]]
        narrow = next((each for each in self._parameters if each.dtype not in (torch.float32, torch.float64)), None)
        if narrow is not None:
            raise UsageError(
                f"optimizers.dense: shampoo is given weights of {str(narrow.dtype).removeprefix('torch.')}, whose "
                "statistics have no roots; train dense layers in fp32 (model.precision may be bf16)"
            )
        self.blocks = blocks_of([tuple(each.shape) for each in self._parameters], self.settings.max_preconditioner_dim)
        many = dist.is_available() and dist.is_initialized()
        self._rank, self._ranks = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)
        self._owners = owners(self.blocks, self._ranks, self.settings)
        self.took = Stopwatch()

    @staticmethod
    def state_of_ranks(shapes: Any, ranks: int, arguments: Any) -> list[int]:
        """Bytes of state on each rank for layers of these shapes, which cannot be measured on a small weight."""
        return state_of_ranks(ShampooSettings.of(arguments), shapes, ranks)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Compute the directions of this rank's blocks, gather those of other ranks, and update all parameters."""
        del closure
        with self.took:
            self._step()

    def _step(self) -> None:
        found = {number: self._direction(self.blocks[number]) for number in self._owned(self._rank)}
        rates = {id(each): group["lr"] for group in cast(list[Any], self.param_groups) for each in group["params"]}
        for number, direction in self._gathered(found):
            parameter = self._parameters[self.blocks[number].parameter]
            if parameter.grad is not None:
                _part(parameter, self.blocks[number]).add_(direction, alpha=-rates[id(parameter)])

    def _owned(self, rank: int) -> list[int]:
        return [number for number, owner in enumerate(self._owners) if owner == rank]

    def _state(self, block: Block) -> dict[str, torch.Tensor]:
        """The state of one of this rank's blocks, by name. In checkpoints, these names follow the name of the block."""
        parameter = self._parameters[block.parameter]
        kept, place = self.state[parameter], f"{block.name}."
        if f"{place}step" not in kept:
            (m, n), like = block.shape, {"dtype": parameter.dtype, "device": parameter.device}
            kept[f"{place}step"] = torch.zeros((), dtype=torch.int64)  # on the host, so that no step waits for it
            kept[f"{place}second"] = torch.zeros(m, n, **like)
            if self.settings.grafting == ADAM:
                kept[f"{place}first"] = torch.zeros(m, n, **like)
            for side, size in (("left", m), ("right", n)) if block.factored else ():
                kept[f"{place}{side}"] = torch.eye(size, **like) * self.settings.matrix_eps
                kept[f"{place}{side}_root"] = torch.eye(size, **like)
        return {name.removeprefix(place): each for name, each in kept.items() if name.startswith(place)}

    def _direction(self, block: Block) -> torch.Tensor:
        """The direction (m, n) of one of this rank's blocks, before the learning rate; updates the block's state."""
        state, gradient = self._state(block), self._parameters[block.parameter].grad
        if gradient is None:  # a layer without a gradient is not changed
            return torch.zeros(block.shape, dtype=state["second"].dtype, device=state["second"].device)
        gradient = _part(gradient.contiguous(), block)
        state["step"] += 1
        step, settings = int(state["step"]), self.settings
        followed, grafted = self._grafted(state, gradient, step)
        if not block.factored:
            return grafted
        if step % settings.statistics_frequency == 0:
            keep = settings.kept
            for side, half in (("left", gradient), ("right", gradient.T)):
                state[side].addmm_(half, half.T, beta=keep, alpha=1.0 if keep == 1 else 1 - keep)
        if step % settings.precondition_frequency == 0:
            for side in ("left", "right"):
                root = inverse_fourth_root(state[side])
                if root is not None:
                    state[f"{side}_root"].copy_(root)
        if step < settings.precondition_frequency:
            return grafted
        direction = state["left_root"] @ followed @ state["right_root"]
        return direction.mul_(grafted.norm() / (direction.norm() + 1e-16))

    def _grafted(self, state: Any, gradient: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(the numbers to precondition, the step of the grafted method), both (m, n)."""
        settings = self.settings
        if settings.grafting != ADAM:
            state["second"].addcmul_(gradient, gradient)
            return gradient, gradient / (state["second"].sqrt() + settings.eps)
        state["first"].lerp_(gradient, 1 - settings.beta1)
        state["second"].mul_(settings.beta2).addcmul_(gradient, gradient, value=1 - settings.beta2)
        mean = state["first"] / (1 - settings.beta1**step)
        return mean, mean / ((state["second"] / (1 - settings.beta2**step)).sqrt() + settings.eps)

    def _gathered(self, found: dict[int, torch.Tensor]) -> Iterator[tuple[int, torch.Tensor]]:
        """(block number, direction) from all ranks. Each rank sends one message, padded to the longest."""
        if self._ranks == 1:
            yield from found.items()
            return
        owned = [self._owned(rank) for rank in range(self._ranks)]
        longest = max(sum(self.blocks[number].numbers for number in mine) for mine in owned)
        first = self._parameters[0]
        message = torch.zeros(longest, dtype=first.dtype, device=first.device)
        flat = [each.reshape(-1) for each in found.values()]
        if flat:
            message[: sum(map(len, flat))] = torch.cat(flat)
        messages = message.new_empty(self._ranks * longest)
        dist.all_gather_into_tensor(messages, message)
        for rank, mine in enumerate(owned):
            sizes = [self.blocks[number].numbers for number in mine]
            parts = messages[rank * longest :][: sum(sizes)].split(sizes)
            for number, part in zip(mine, parts, strict=True):
                yield number, part.view(self.blocks[number].shape)


def inverse_fourth_root(factor: torch.Tensor) -> torch.Tensor | None:
    """factor^(-1/4) of a symmetric positive semidefinite matrix (d, d); None if the matrix has non-finite numbers.

    Eigenvalues below the matrix's precision are raised to it. If the result is None, training continues with the
    previous root: a non-finite gradient shows in the loss of the next step, where the guard of losses reports it.
    """
    if not bool(torch.isfinite(factor).all()):
        return None
    values, vectors = torch.linalg.eigh(factor)
    least = torch.finfo(factor.dtype).eps * len(values) * values[-1].clamp_min(torch.finfo(factor.dtype).tiny)
    return (vectors * torch.maximum(values, least).pow(-0.25)) @ vectors.T


def _part(tensor: torch.Tensor, block: Block) -> torch.Tensor:
    """A block of a parameter or of its gradient, as a view (m, n)."""
    whole = tensor.view(tensor.shape[0], -1) if block.factored else tensor.view(1, -1)
    return whole[slice(*block.rows), slice(*block.columns)]
