"""Policies of DreamShard as files: tensors and card in one safetensors file (costs/weight_files.py)."""

from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._types import noun
from recsmith.costs.weight_files import (
    POLICY,
    check_tensors,
    damaged,
    find_weights,
    read_weights,
    shipped,
    write_weights,
)
from recsmith.files import check_schema, decode, encode
from recsmith.planners.dreamshard.network import SHAPES, DreamShardNetwork

SCHEMA = "recsmith/dreamshard-card/1"
MADE_BY = "recsmith learn dreamshard"
LARGEST = 100.0  # of a weight: exponentials of larger ones overflow; trained ones stay below 10


@noun
class HeldOutTasks:
    """How the policy does on tasks of tables that training never saw, measured on the hardware it was trained on.

    step_s: mean over tasks. best_greedy: which classic greedy is best on them; greedy_step_s: its mean. predicted_off:
    median of |predicted / measured - 1| of the policy's steps.
    """

    tasks: int
    devices: int
    tables: int
    step_s: float
    best_greedy: str
    greedy_step_s: float
    predicted_off: float


@noun
class PolicyCard:
    """What a policy is, and how far it can be trusted.

    hardware, device, versions: what costs were collected on. devices, tables: of the training tasks. tasks: of
    training. task_seed: of the tasks; seed: of weights and draws. measured: placements that were measured. iterations:
    that training ran. reward: estimated, or measured.
    """

    hardware: str
    device: str
    versions: str
    devices: int
    tables: int
    tasks: int
    task_seed: int
    seed: int
    measured: int
    iterations: int
    reward: str
    held_out: HeldOutTasks


def save_policy(target: str, tensors: dict[str, Any], card: PolicyCard) -> None:
    """Write arrays and their card: whole or not at all."""
    write_weights(target, tensors, {"schema": SCHEMA, **encode(card)})


def shipped_policies() -> list[str]:
    """Names of the policies that ship, without the prefix of their files."""
    return [name.removeprefix(POLICY) for name in shipped() if name.startswith(POLICY)]


def find_policy(name: str) -> Path:
    """The file of a path that ends with .safetensors, or of a name that ships."""
    return find_weights(name, "policy", MADE_BY, shipped_policies(), POLICY)


def load_policy(path: Path) -> tuple[DreamShardNetwork, PolicyCard]:
    """Read a file that `recsmith learn dreamshard` wrote.

    Raises:
        UsageError: it cannot be read.
        CorruptFile: it is damaged, of another schema, or holds what no training writes.
    """
    raw, tensors = read_weights(path, MADE_BY)
    card = decode(PolicyCard, check_schema(cast(dict[str, Any], raw), SCHEMA, str(path), MADE_BY), str(path))
    check_tensors(tensors, SHAPES, str(path), MADE_BY)
    if (tensors["spread"] <= 0).any():
        damaged(str(path), "tensor 'spread' holds numbers that are not above 0", MADE_BY)
    for name, value in tensors.items():
        if (np.abs(value) > LARGEST).any():
            damaged(str(path), f"tensor '{name}' holds numbers above {LARGEST:g}, which no training reaches", MADE_BY)
    return DreamShardNetwork(tensors), card
