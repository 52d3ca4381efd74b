"""The split policy: the log-odds that a table is split further at its turn; and its files.

    figures of a turn, all relative -> two layers -> the log-odds of splitting further

It sees loads, shares and room as the cost model predicts them, relative to an even share, and no single device. So one
policy serves any number of devices and tables, and any cost model. learning/policies/splits.py trains the same formula
in PyTorch; a test checks that both agree.

Legend: V decisions, R episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from recsmith._types import Bools, Floats, Ints, noun
from recsmith.costs.weight_files import check_tensors, damaged, find_weights, read_weights, shipped, write_weights
from recsmith.elementary import matmul
from recsmith.files import check_schema, decode, encode
from recsmith.planners.placing.policy_files import LARGEST

FIGURES, HIDDEN = 16, 32
SHAPES: dict[str, tuple[int, ...]] = {
    "split0": (HIDDEN, FIGURES), "split0_bias": (HIDDEN,), "split1": (1, HIDDEN), "split1_bias": (1,),
}  # fmt: skip
SCHEMA, MADE_BY, PREFIX = "recsmith/splits-card/1", "recsmith learn splits", "splits-"
OF_KIND = {"cuda": "simulated-h100", "cpu": "cpu"}  # the shipped policy for a kind of device


Decide = Callable[[Ints, int, Floats], Bools]
"""Whether to split further (R,): in episodes (R,), at the turn of a shape, by figures (R, FIGURES)."""


@dataclass(frozen=True)
class SplitPolicy:
    """A split policy: its weights, by the names of SHAPES."""

    tensors: dict[str, Floats] = field(repr=False)

    def log_odds(self, figures: Floats) -> Floats:
        """Log-odds (V,) of splitting further, for decisions (V, FIGURES)."""
        hidden = np.maximum(matmul(figures, self.tensors["split0"].T) + self.tensors["split0_bias"], 0.0)
        return matmul(hidden, self.tensors["split1"][0]) + self.tensors["split1_bias"][0]

    def drawn(self, random: np.random.Generator, *, likeliest: bool = False) -> Decide:
        """Decisions drawn from the policy. likeliest: the first episode takes the likelier decision instead."""

        def decide(rows: Ints, _: int, figures: Floats) -> Bools:
            chance = random.logistic(size=len(rows))
            return self.log_odds(figures) + np.where(rows == 0, 0.0 if likeliest else chance, chance) > 0

        return decide


@noun
class SplitCard:
    """What a split policy was trained on. cost_model: which priced its placements; nothing is measured.

    sizes: of the training tasks, as 4x50. tasks, task_seed: of training. seed: of weights and draws. judged: number of
    tasks of unseen tables. ahead: the mean share of longest-first's step that the best of 8 episodes saves on them, by
    the cost model. own: file or folder of the tables, and digest: their digest; both None if the tables are the shared
    pool's.
    """

    cost_model: str
    device: str
    sizes: tuple[str, ...]
    tasks: int
    task_seed: int
    seed: int
    iterations: int
    judged: int
    ahead: float
    own: str | None = None
    digest: str | None = None


def save_splits(target: str, policy: SplitPolicy, card: SplitCard) -> None:
    """Write a policy and its card; the file is written completely or not at all."""
    write_weights(target, policy.tensors, {"schema": SCHEMA, **encode(card)})


def load_splits(name: str) -> tuple[SplitPolicy, SplitCard]:
    """The policy of a file, or a shipped policy by its name.

    Raises:
        UsageError: there is no policy of that name, or it cannot be read.
        CorruptFile: the file is damaged, has another schema, or holds values that no training writes.
    """
    names = [each.removeprefix(PREFIX) for each in shipped() if each.startswith(PREFIX)]
    path: Path = find_weights(name, "policy of what is split", MADE_BY, names, PREFIX)
    raw, tensors = read_weights(path, MADE_BY)
    card = decode(SplitCard, check_schema(cast(dict[str, Any], raw), SCHEMA, str(path), MADE_BY), str(path))
    check_tensors(tensors, SHAPES, str(path), MADE_BY)
    large = next((key for key, value in tensors.items() if (np.abs(value) > LARGEST).any()), None)
    if large is not None:
        damaged(str(path), f"tensor '{large}' holds numbers above {LARGEST:g}, which no training reaches", MADE_BY)
    return SplitPolicy(tensors), card


@lru_cache
def shipped_splits(kind: Literal["cuda", "cpu"]) -> SplitPolicy:
    """The shipped policy for a kind of device."""
    return load_splits(OF_KIND[kind])[0]
