"""Compositional embeddings: an id's vector is combined from rows of several small tables.

Shi et al., Compositional Embeddings Using Complementary Partitions, KDD 2020 (arXiv 1909.02107). Partitions of the ids
are complementary if any two ids are in different classes of at least one partition, so no two ids share all their rows.

K partitions, n ids of a feature in a batch
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

from recsmith._types import Ints, noun
from recsmith.data import JaggedIds
from recsmith.embeddings.compression import CompressionRule, Dial, LogicalTable, Operation, StorageMethod
from recsmith.embeddings.transforms import (
    EmbeddingTransform,
    Lookup,
    PhysicalTable,
    check_bags,
    check_ids,
    kept,
    places,
    renamed,
)
from recsmith.errors import check_rules

Family = Literal["mixed_radix", "chinese_remainder"]


@noun
class Compositional(EmbeddingTransform):
    """A table stored as K small tables, one row of each for every id.

    sizes: rows of the small tables (K,). family: mixed_radix: rows are an id's digits in the mixed radix of these
    sizes, the lowest first (for two: remainder and quotient); chinese_remainder: rows are the id's remainders by
    coprime sizes. operation: multiply or add rows of the table's width, or concat rows of 1/K of its width; generate
    makes each partition a feature of its own, so that the model sees K features in place of one. max_bag: most ids in
    a bag; it matters for multiply only, which works id by id before bags are summed and so looks up each position.
    """

    num_embeddings: int
    embedding_dim: int
    sizes: tuple[int, ...]
    family: Family = "mixed_radix"
    operation: Operation = "multiply"
    max_bag: int = 1

    def __post_init__(self) -> None:
        """Check that the partitions are complementary, and that widths and counts are valid."""
        count = max(1, len(self.sizes))
        check_rules(
            None if len(self.sizes) >= 2 else f"sizes are {list(self.sizes)}; a table is put together from 2 or more",
            None if min(self.sizes, default=0) > 0 else f"sizes are {list(self.sizes)}; each is above 0",
            complementary(self.sizes, self.family, self.num_embeddings),
            None
            if self.operation != "concat" or self.embedding_dim % (4 * count) == 0
            else f"embedding_dim {self.embedding_dim} cannot be shared by {count} tables in multiples of 4 columns, "
            "which kernels want; take another width or operation",
            None if self.max_bag > 0 else f"max_bag is {self.max_bag}; 1 or more",
        )

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """One table per partition."""
        width = self.embedding_dim // (len(self.sizes) if self.operation == "concat" else 1)
        one = {"center": 1.0, "reach": 0.0} if self.operation == "multiply" else {}
        return tuple(
            PhysicalTable(
                name=f"partition{k}", num_embeddings=rows, embedding_dim=width, **({} if k == self._largest else one)
            )
            for k, rows in enumerate(self.sizes)
        )

    @property
    def _largest(self) -> int:
        """Number of the largest table; if rows are multiplied, only its weights start random, all others are 1."""
        return self.sizes.index(max(self.sizes))

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One lookup per partition; for multiply, one per partition and position in a bag."""
        parts = range(len(self.sizes))
        if self.operation != "multiply" or self.max_bag == 1:
            return tuple(Lookup(name=f"partition{k}", part=k) for k in parts)
        return tuple(
            Lookup(name=f"partition{k}_{i}", part=k, among=self.max_bag) for i in range(self.max_bag) for k in parts
        )

    @property
    def cover(self) -> tuple[int, ...]:
        """The lookups of the first partition."""
        return tuple(range(0, len(self.lookups), len(self.sizes)))

    def classes(self, ids: Ints) -> list[Ints]:
        """The class of each id (n,) under every partition."""
        if self.family == "chinese_remainder":
            return [ids % size for size in self.sizes]
        digits: list[Ints] = []
        for size in self.sizes[:-1]:
            digits.append(ids % size)
            ids = ids // size
        return [*digits, ids]

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each partition; for multiply, of each position in a bag and partition."""
        check_ids(ids, self.num_embeddings)
        classes = self.classes(ids.values)
        if self.operation != "multiply":
            return tuple(renamed(ids, values) for values in classes)
        check_bags(ids, self.max_bag, "multiplied")
        if self.max_bag == 1:
            return tuple(renamed(ids, values) for values in classes)
        place = places(ids)
        return tuple(kept(ids, values, place == i) for i in range(self.max_bag) for values in classes)

    @property
    def outputs(self) -> tuple[str, ...]:
        """For generate, each partition is a separate feature of the model."""
        return tuple(lookup.name for lookup in self.lookups) if self.operation == "generate" else ()

    def combination(self) -> Any:
        """The module that multiplies, adds or concatenates vectors."""
        from recsmith.embeddings.combining import Concatenation, Products, Sums

        if self.operation == "multiply":
            return Products(len(self.sizes))
        return Sums() if self.operation == "add" else Concatenation()


class QuotientRemainder(StorageMethod):
    """Stores a table as a table of quotients, each shared by `factor` ids, and a table of `factor` remainders."""

    reads = ("factor", "operation", "max_bag")
    dial = Dial(field="factor", low=1.0, high=1e6, by_ratio=True, whole=True)
    family: Family = "mixed_radix"

    def transform(self, table: LogicalTable) -> EmbeddingTransform:
        """The table stored as partitions."""
        _, rows, columns = table
        return Compositional(
            num_embeddings=rows,
            embedding_dim=columns,
            sizes=self._sizes(rows),
            family=self.family,
            operation=self.rule.operation,
            max_bag=self.rule.max_bag,
        )

    def _sizes(self, rows: int) -> tuple[int, ...]:
        """Number of rows of each partition."""
        return quotient_remainder(rows, sharing(self.rule, rows))


class MixedRadix(QuotientRemainder):
    """Stores a table as `count` tables of about equally many rows, one for each digit of an id."""

    reads = ("count", "operation", "max_bag")
    dial = None

    def _sizes(self, rows: int) -> tuple[int, ...]:
        return balanced(rows, self.rule.count)


class ChineseRemainder(MixedRadix):
    """Stores a table as `count` tables of coprime sizes, one for each remainder of an id."""

    family = "chinese_remainder"

    def _sizes(self, rows: int) -> tuple[int, ...]:
        return coprime(rows, self.rule.count)


def sharing(rule: CompressionRule, rows: int) -> int:
    """How many of a table's ids share a quotient: the rule's factor, but at most the square root of the rows."""
    return min(round(rule.factor), math.isqrt(rows))


def quotient_remainder(num_embeddings: int, collisions: int) -> tuple[int, ...]:
    """Sizes of the quotient-remainder trick: `collisions` ids share a quotient and differ in their remainders.

    The number of quotients is ceil(num_embeddings / collisions), as in the reference code.
    """
    return (collisions, -(-num_embeddings // collisions))


def balanced(num_embeddings: int, count: int) -> tuple[int, ...]:
    """Sizes of `count` mixed-radix partitions with about equally many rows, as few as possible."""
    sizes: list[int] = []
    left = num_embeddings
    for k in range(count, 0, -1):
        size = _root(left, k)
        sizes.append(size)
        left = -(-left // size)
    return tuple(sizes)


def coprime(num_embeddings: int, count: int) -> tuple[int, ...]:
    """Sizes of `count` Chinese-remainder partitions: close coprime numbers with a product of num_embeddings or more."""
    sizes = [_root(num_embeddings, count)]
    while len(sizes) < count or math.prod(sizes) < num_embeddings:
        if len(sizes) == count:
            sizes = [sizes[0] + 1]
        after = sizes[-1] + 1
        while any(math.gcd(after, size) > 1 for size in sizes):
            after += 1
        sizes.append(after)
    return tuple(sizes)


def complementary(sizes: Sequence[int], family: Family, num_embeddings: int) -> str | None:
    """The error text for partitions in which two ids could share all their rows; None if no two ids can."""
    product = math.prod(sizes)
    if product < num_embeddings:
        return (
            f"sizes {list(sizes)} tell {product:,} ids apart and the table has {num_embeddings:,}; "
            "their product must reach it"
        )
    if family == "chinese_remainder":
        pairs = ((a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :])
        shared = next(((a, b) for a, b in pairs if math.gcd(a, b) > 1), None)
        if shared:
            return f"sizes {shared[0]} and {shared[1]} share the factor {math.gcd(*shared)}; take sizes that share none"
    return None


def _root(number: int, degree: int) -> int:
    """The smallest whole number x with x ** degree >= number."""
    found = max(1, round(number ** (1 / degree)))
    while found**degree < number:
        found += 1
    while found > 1 and (found - 1) ** degree >= number:
        found -= 1
    return found
