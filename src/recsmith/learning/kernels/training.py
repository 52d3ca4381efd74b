# pyright: basic
"""Trains the model of one kind of kernel in PyTorch, the same as prediction/kernels/__init__.py in NumPy."""

import copy

import numpy as np
import torch
from torch import nn

from recsmith._types import Bools, Floats
from recsmith.learning.training_loop import LINEAR_FROM, rate_at
from recsmith.prediction.kernels import BEND, REACH, KernelModel, inputs_of, work_of

STARTS = 3  # networks whose mean is the model
WIDTH, STEPS, JUDGED_EVERY = 32, 1500, 25  # hidden units; steps, each with all kernels; steps between two validations
ROOFLINE_STEPS = 500  # steps that fit the roofline before any network
RATE, DECAY = 1e-2, 1e-4  # Adam's learning rate and weight decay, as in Lin et al.'s grid
LEAST_SPREAD = 1e-3  # added to deviations of inputs, which may all be equal
LAST_LAYER = 0.1  # factor of the last layer's first weights: the network begins near its roofline
Layers = list[tuple[torch.Tensor, torch.Tensor]]  # weight and bias


def train_kind(
    kind: str, shapes: Floats, between: Floats, seconds: Floats, train: Bools, choose: Bools, seed: int
) -> KernelModel:
    """The model of a kind: a roofline, and the mean of some networks that correct it.

    shapes (K, figures), between (K,) bytes of other data, seconds (K,). train, choose (K,): masks of the kernels that
    train, and of those that choose the best step.
    """
    inputs, work = inputs_of(kind, shapes, between), work_of(kind, shapes)
    centre, spread = inputs[train].mean(axis=0), inputs[train].std(axis=0) + LEAST_SPREAD
    flow = torch.tensor(np.clip((inputs - centre) / spread, -REACH, REACH), dtype=torch.float32)
    base = _roofline(work[train], seconds[train])
    target = torch.tensor(np.log(seconds) - np.log(work @ np.exp(base)), dtype=torch.float32)
    masks = torch.tensor(train), torch.tensor(choose)
    found = [_network(flow, target, *masks, STARTS * seed + start) for start in range(STARTS)]
    arrays = [(_stored(weight.numpy()), _stored(bias.numpy())) for weight, bias in _mean(found)]
    return KernelModel(kind, _stored(base), _stored(centre), _stored(spread), tuple(arrays))


def _roofline(work: Floats, seconds: Floats) -> Floats:
    """Logarithms of the cost of each figure of work (w,), with the best fit of their sum to the seconds."""
    usual = np.median(seconds) / work.shape[1] / np.maximum(np.median(work, axis=0), 1.0)
    base, work_t, target = nn.Parameter(torch.tensor(np.log(usual))), torch.tensor(work), torch.tensor(np.log(seconds))
    optimizer = torch.optim.Adam([base], lr=5 * RATE)
    for _ in range(ROOFLINE_STEPS):
        _learn(optimizer, (work_t @ base.exp()).log() - target)
    return base.detach().numpy()


def _network(
    flow: torch.Tensor, target: torch.Tensor, learning: torch.Tensor, choosing: torch.Tensor, seed: int
) -> Layers:
    """The layers of a network from inputs (K, x) to logarithms (K,) of measured over roofline, at its best step."""
    torch.manual_seed(seed)
    layers = nn.ModuleList([nn.Linear(flow.shape[1], WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)])
    with torch.no_grad():
        layers[-1].get_parameter("weight").mul_(LAST_LAYER)
    optimizer = torch.optim.Adam(layers.parameters(), lr=RATE, weight_decay=DECAY)
    best, best_state = float("inf"), copy.deepcopy(layers.state_dict())
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate_at(step / STEPS)
        off = BEND * torch.tanh(layers[2](layers[1](layers[0](flow).relu()).relu())[:, 0] / BEND) - target
        if step % JUDGED_EVERY == 0 or step == STEPS - 1:  # before the step, which changes what was judged
            error = float(off[choosing].detach().abs().mean())
            if error < best:
                best, best_state = error, copy.deepcopy(layers.state_dict())
        _learn(optimizer, off[learning])
    layers.load_state_dict(best_state)
    return [(layer.get_parameter("weight").detach(), layer.get_parameter("bias").detach()) for layer in layers]


def _learn(optimizer: torch.optim.Optimizer, off: torch.Tensor) -> None:
    """Take a step that reduces logarithmic errors."""
    optimizer.zero_grad()
    nn.functional.smooth_l1_loss(off, torch.zeros_like(off), beta=LINEAR_FROM).backward()
    optimizer.step()


def _mean(networks: list[Layers]) -> Layers:
    """One network whose output is the mean of the outputs of several."""
    (first, second, last) = zip(*networks, strict=True)
    return [
        (torch.cat([weight for weight, _ in first]), torch.cat([bias for _, bias in first])),
        (torch.block_diag(*[weight for weight, _ in second]), torch.cat([bias for _, bias in second])),
        (torch.cat([weight for weight, _ in last], dim=1) / len(networks),
         torch.stack([bias for _, bias in last]).mean(dim=0)),
    ]  # fmt: skip


def _stored(values: np.ndarray) -> Floats:
    """Values as they are read from a file: rounded to fp32."""
    return values.astype(np.float32).astype(np.float64)
