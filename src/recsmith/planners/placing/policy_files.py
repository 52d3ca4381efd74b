"""Policies as files: tensors and card in one safetensors file (costs/weight_files.py), for every kind of policy."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.weight_files import check_tensors, damaged, find_weights, read_weights, shipped, write_weights
from recsmith.files import check_schema, decode, encode
from recsmith.planners.placing.policy_network import PlacingNetwork

LARGEST = 100.0  # largest weight: exponentials of larger ones overflow; trained weights stay below 10


@noun
class HeldOutTasks:
    """How the policy does on tasks of tables that training never saw, measured on the hardware it was trained on.

    step_s: mean seconds of a step over tasks. best_greedy: the greedy planner that is best on them; greedy_step_s: its
    mean. predicted_off: median of |predicted / measured - 1| of the policy's steps.
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

    hardware, device, versions: what costs were collected on. devices, tables: of the training tasks. tasks: number of
    training tasks. task_seed: of the tasks; seed: of weights and draws. measured: number of measured placements.
    iterations: number of training iterations. reward: estimated, or measured. own: file or folder of the tables, and
    digest: their digest; both None if the tables are the shared pool's.
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
    own: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class PolicyKind:
    """The policies of one planner. shapes: of their tensors. network: makes a network from tensors."""

    planner: str
    shapes: dict[str, tuple[int, ...]]
    network: Callable[[dict[str, Floats]], PlacingNetwork]

    @property
    def schema(self) -> str:
        """The schema of the card."""
        return f"recsmith/{self.planner}-card/1"

    @property
    def made_by(self) -> str:
        """The command that trains such a policy."""
        return f"recsmith learn {self.planner}"

    def save(self, target: str, tensors: dict[str, Any], card: PolicyCard) -> None:
        """Write arrays and their card; the file is written completely or not at all."""
        write_weights(target, tensors, {"schema": self.schema, **encode(card)})

    def shipped(self) -> list[str]:
        """Names of the policies that ship, without the prefix of their files."""
        return [name.removeprefix(self._prefix) for name in shipped() if name.startswith(self._prefix)]

    def find(self, name: str) -> Path:
        """The file for a path that ends with .safetensors, or for the name of a shipped policy."""
        return find_weights(name, "policy", self.made_by, self.shipped(), self._prefix)

    def load(self, path: Path) -> tuple[PlacingNetwork, PolicyCard]:
        """Read a file that training wrote.

        Raises:
            UsageError: the file cannot be read.
            CorruptFile: the file is damaged, has another schema, or holds values that no training writes.
        """
        raw, tensors = read_weights(path, self.made_by)
        known = check_schema(cast(dict[str, Any], raw), self.schema, str(path), self.made_by)
        card = decode(PolicyCard, known, str(path))
        check_tensors(tensors, self.shapes, str(path), self.made_by)
        if (tensors["spread"] <= 0).any():
            damaged(str(path), "tensor 'spread' holds numbers that are not above 0", self.made_by)
        for name, value in tensors.items():
            if (np.abs(value) > LARGEST).any():
                reason = f"tensor '{name}' holds numbers above {LARGEST:g}, which no training reaches"
                damaged(str(path), reason, self.made_by)
        return self.network(tensors), card

    @property
    def _prefix(self) -> str:
        return f"{self.planner}-"
