"""What a search may choose from: the words that travel with every bound."""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.files import did_you_mean
from recsmith.plans.plan import wrong_load_factor
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, UVM_CACHING
from recsmith.sharding.memory import CACHE_LOAD_FACTOR

LARGEST_WIDTH = 65_536  # columns of the widest table that can be planned
CACHE_FACTORS = (0.05, 0.1, 0.2, 0.5)  # CACHE_LOAD_FACTOR, TorchRec's only one, and some that weigh less or miss less


def wrong_words(words: tuple[str, ...] | None, known: tuple[str, ...], what: str) -> str | None:
    """What is wrong with a list of words, of which some must be known; None where nothing is."""
    if words is None:
        return None
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        return f"no {what} is called '{unknown}'{did_you_mean(unknown, list(known))}"
    return None if words else f"at least one {what} must be allowed; known: {', '.join(known)}"


def wrong_factors(factors: tuple[float, ...] | None) -> str | None:
    """What is wrong with shares that caches may keep; None where nothing is."""
    if factors == ():
        return f"at least one cache factor must be allowed, such as {CACHE_LOAD_FACTOR}"
    return next(filter(None, (wrong_load_factor(factor) for factor in factors or ())), None)


@noun
class Space:
    """The placements that a search chooses from.

    types: sharding types. kernels: compute kernels (data_parallel runs only 'dense', all others never do).
    widths: 'any' (every split of the columns into multiples of 4) or 'torchrec' (the one width that TorchRec's planner
        proposes: the smallest divisor of the dim that is at least 128 and a multiple of 4).
    cache_factors: shares of a table's rows that fused_uvm_caching may keep on the device; rules give tables their own.
        Without that kernel they say nothing, and stay what they are by default.
    """

    types: tuple[str, ...] = TYPE_NAMES
    widths: Literal["any", "torchrec"] = "any"
    kernels: tuple[str, ...] = ("fused", "dense")
    cache_factors: tuple[float, ...] = CACHE_FACTORS

    def __post_init__(self) -> None:
        """Check the words; keep them in the house order, once each."""
        check_rules(
            wrong_words(self.types, TYPE_NAMES, "sharding type"),
            wrong_words(self.kernels, KERNEL_NAMES, "compute kernel"),
            wrong_factors(self.cache_factors),
        )
        object.__setattr__(self, "types", tuple(name for name in TYPE_NAMES if name in self.types))
        object.__setattr__(self, "kernels", tuple(name for name in KERNEL_NAMES if name in self.kernels))
        factors = tuple(sorted(set(self.cache_factors)))
        object.__setattr__(self, "cache_factors", factors if UVM_CACHING.name in self.kernels else CACHE_FACTORS)

    def describe(self) -> str:
        """A few words for a report."""
        types = "all types" if self.types == TYPE_NAMES else " + ".join(self.types)
        factors = ", ".join(f"{factor:g}" for factor in self.cache_factors)
        kernels = [f"{kernel} at {factors}" if kernel == UVM_CACHING.name else kernel for kernel in self.kernels]
        return f"{types}; widths {self.widths}; kernels {', '.join(kernels)}"
