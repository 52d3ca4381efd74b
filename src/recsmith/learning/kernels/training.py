# pyright: basic
"""Trains the model of one kind of kernel in PyTorch, the same as prediction/kernels/models.py in NumPy."""

import copy

import numpy as np
import torch
from torch import nn

from recsmith._types import Bools, Floats
from recsmith.learning.training_loop import LINEAR_FROM, rate_at
from recsmith.prediction.kernels.inputs import inputs_of, work_of
from recsmith.prediction.kernels.models import BEND, REACH, KernelModel

WIDTH, STEPS, JUDGED_EVERY = 32, 1500, 25  # hidden units; steps of all kernels at once; steps between two judgements
RATE, DECAY = 1e-2, 1e-4  # of Adam, as in Lin et al.'s grid
LEAST_SPREAD = 1e-3  # added to deviations of inputs, which may all be equal
LAST_LAYER = 0.1  # factor of the last layer's first weights: the network begins near its roofline


def train_kind(kind: str, shapes: Floats, seconds: Floats, train: Bools, choose: Bools, seed: int) -> KernelModel:
    """The model of a kind. shapes (K, figures), seconds (K,); train, choose (K,): which, and which choose."""
    torch.manual_seed(seed)
    inputs, work = inputs_of(kind, shapes), work_of(kind, shapes)
    centre, spread = inputs[train].mean(axis=0), inputs[train].std(axis=0) + LEAST_SPREAD
    flow = torch.tensor(np.clip((inputs - centre) / spread, -REACH, REACH), dtype=torch.float32)
    work_t, target = torch.tensor(work), torch.tensor(np.log(seconds))
    layers = nn.ModuleList([nn.Linear(inputs.shape[1], WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)])
    with torch.no_grad():
        layers[-1].get_parameter("weight").mul_(LAST_LAYER)
    usual = np.median(seconds[train]) / work.shape[1] / np.maximum(np.median(work[train], axis=0), 1.0)
    base = nn.Parameter(torch.tensor(np.log(usual)))
    network = nn.ParameterList([base, *layers.parameters()])
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY)

    def predicted() -> torch.Tensor:
        hidden = layers[1](layers[0](flow).relu()).relu()
        bent = BEND * torch.tanh(layers[2](hidden)[:, 0] / BEND)
        return (work_t @ base.exp()).log() + bent

    learning, choosing = torch.tensor(train), torch.tensor(choose)
    best, best_state = float("inf"), copy.deepcopy((layers.state_dict(), base.detach()))
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate_at(step / STEPS)
        off = predicted() - target
        loss = nn.functional.smooth_l1_loss(off[learning], torch.zeros_like(off[learning]), beta=LINEAR_FROM)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % JUDGED_EVERY == 0 or step == STEPS - 1:
            error = float(off[choosing].abs().mean())
            if error < best:
                best, best_state = error, copy.deepcopy((layers.state_dict(), base.detach()))
    layers.load_state_dict(best_state[0])
    arrays = [(layer.get_parameter("weight"), layer.get_parameter("bias")) for layer in layers]
    return KernelModel(
        kind, _stored(best_state[1].numpy()), _stored(centre), _stored(spread),
        tuple((_stored(weight.detach().numpy()), _stored(bias.detach().numpy())) for weight, bias in arrays),
    )  # fmt: skip


def _stored(values: np.ndarray) -> Floats:
    """Values as a file gives them back."""
    return values.astype(np.float32).astype(np.float64)
