"""The blocks of dense layers for which Shampoo keeps factors, and the rank that owns each; without torch.

m rows and n columns of a block, W ranks
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from recsmith._components import checked
from recsmith._types import noun
from recsmith.errors import check_rules, too_small

ADAM, ADAGRAD = "adam", "adagrad"
GRAFTED = (ADAM, ADAGRAD)
EIGH_FLOPS = 20  # x d^3: operations of an eigendecomposition (LAPACK's syevd) and of the root from it


@noun
class ShampooSettings:
    """Settings of Shampoo, named as in Meta's package where it has them.

    max_preconditioner_dim: the largest number of rows and of columns of a block. precondition_frequency: steps between
    two computations of roots. Preconditioning begins with the first of them; before it, steps are those of the grafted
    method. statistics_frequency: steps between two gradients that enter the statistics. grafting: adam or adagrad,
    whose step gives a block's step its length. decay: factor of the statistics at each of these gradients; none: 1
    (gradients are summed) for adagrad, beta2 for adam. beta1, beta2: of adam. eps: of the grafted method. matrix_eps:
    initial value on the diagonal of the statistics.
    """

    max_preconditioner_dim: int = 256  # measured: 512 costs twice as much of a step (docs/optimizers.md)
    precondition_frequency: int = 50
    statistics_frequency: int = 5
    grafting: str = ADAM
    decay: float | None = None
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    matrix_eps: float = 1e-12

    def __post_init__(self) -> None:
        shares = {"beta1": self.beta1, "beta2": self.beta2}
        check_rules(
            *(too_small(f"optimizers.dense.arguments.{name}", getattr(self, name), 1)
              for name in ("max_preconditioner_dim", "precondition_frequency", "statistics_frequency")),
            None if self.statistics_frequency <= self.precondition_frequency else
            f"optimizers.dense.arguments.statistics_frequency is {self.statistics_frequency}, more than "
            f"precondition_frequency {self.precondition_frequency}: roots would be taken of nothing; lower it",
            None if self.grafting in GRAFTED else
            f"optimizers.dense.arguments.grafting is {self.grafting}; give {' or '.join(GRAFTED)}",
            *(None if 0 <= value < 1 else f"optimizers.dense.arguments.{name} is {value}; it lies from 0 to below 1"
              for name, value in shares.items()),
            None if self.decay is None or 0 < self.decay <= 1 else
            f"optimizers.dense.arguments.decay is {self.decay}; it lies above 0 and is at most 1, which sums all "
            "statistics",
            *(None if value > 0 else f"optimizers.dense.arguments.{name} is {value}; it must be above 0"
              for name, value in (("eps", self.eps), ("matrix_eps", self.matrix_eps))),
        )  # fmt: skip

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "ShampooSettings":
        """The settings in optimizers.dense.arguments of a run. Raises UsageError if one is unknown or out of range."""
        return cls(**checked(cls, arguments, "optimizers.dense.arguments"))

    @property
    def kept(self) -> float:
        """The factor by which statistics are multiplied when a gradient is added."""
        return self.decay or (self.beta2 if self.grafting == ADAM else 1.0)


@dataclass(frozen=True)
class Block:
    """Some rows and columns of a parameter seen as a matrix, owned by one rank.

    A vector is one row and has no factors: its step is that of the grafted method.
    """

    parameter: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    factored: bool

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns (m, n)."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    @property
    def numbers(self) -> int:
        """The number of weights."""
        return prod(self.shape)

    @property
    def name(self) -> str:
        """The name in the optimizer's state: the row and column where the block begins."""
        return f"{self.rows[0]}_{self.columns[0]}"

    def state_bytes(self, grafting: str) -> int:
        """Bytes of state in fp32: two factors, two roots, and one or two numbers per weight for the grafted method."""
        m, n = self.shape
        factors = 2 * (m * m + n * n) if self.factored else 0
        return 4 * (factors + self.numbers * (2 if grafting == ADAM else 1) + 1)

    def step_flops(self, settings: ShampooSettings) -> float:
        """Floating point operations per step, with statistics and roots averaged over the steps between them."""
        if not self.factored:
            return 0.0
        m, n = self.shape
        products = 2.0 * m * n * (m + n)
        roots = EIGH_FLOPS * (float(m) ** 3 + float(n) ** 3)
        return products * (1 + 1 / settings.statistics_frequency) + roots / settings.precondition_frequency


def blocks_of(shapes: Sequence[Sequence[int]], most: int) -> list[Block]:
    """Cut parameters into blocks of at most `most` rows and columns. Dimensions after the first are flattened."""
    made: list[Block] = []
    for number, shape in enumerate(shapes):
        m, n = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
        if len(shape) < 2:
            made.append(Block(number, (0, 1), (0, n), factored=False))
            continue
        for first in range(0, m, most):
            for left in range(0, n, most):
                rows, columns = (first, min(first + most, m)), (left, min(left + most, n))
                made.append(Block(number, rows, columns, factored=True))
    return made


def state_of_ranks(settings: ShampooSettings, shapes: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """Bytes of state on each rank, for the blocks that it owns."""
    blocks = blocks_of(shapes, settings.max_preconditioner_dim)
    kept = [0] * ranks
    for block, owner in zip(blocks, owners(blocks, ranks, settings), strict=True):
        kept[owner] += block.state_bytes(settings.grafting)
    return kept


def owners(blocks: Sequence[Block], ranks: int, settings: ShampooSettings) -> list[int]:
    """The rank that owns each block, by greedy assignment, largest blocks first; the same on all ranks.

    Each block is assigned to the rank with the least work so far. Shi et al. 2023 (arXiv 2309.06497), section 4.1,
    measure work by memory; here it is operations, then bytes of state.
    """
    load = [(0.0, 0)] * ranks
    found = [0] * len(blocks)
    sizes = [(each.step_flops(settings), each.state_bytes(settings.grafting)) for each in blocks]
    for number in sorted(range(len(blocks)), key=lambda number: (sizes[number], -number), reverse=True):
        rank = min(range(ranks), key=lambda rank: (load[rank], rank))
        found[number] = rank
        load[rank] = (load[rank][0] + sizes[number][0], load[rank][1] + sizes[number][1])
    return found
