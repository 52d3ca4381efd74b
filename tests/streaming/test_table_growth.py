"""What a running job is told of its tables of ids without end."""

import numpy as np
import pytest

from recsmith.streaming.capacity import IdSample, TableReads
from recsmith.streaming.capacity.drawn import drawn
from recsmith.streaming.capacity.law import IdLaw
from recsmith.streaming.table_growth import TableGrowth
from recsmith.workloads import Dynamic, Feature, Table

LOOKUPS, BATCH, EVERY = 800_000, 1000, 4
STREAM = drawn(IdLaw(power=0.8, shift=0.0, places=3000.0, churn=2e-6), LOOKUPS, 2**20).ids


def table(rows: int, dynamic: Dynamic | None) -> Table:
    return Table(
        name="user", num_embeddings=rows, embedding_dim=4, features=(Feature(name="id", pooling_factor=1.0),),
        dynamic=dynamic,
    )  # fmt: skip


def watched(growth: TableGrowth, steps: int) -> None:
    for step in range(EVERY, steps + 1, EVERY):
        growth.add(step, {"id": STREAM[(step - 1) * BATCH : step * BATCH], "other": np.zeros(3, np.int64)})


def true_rows() -> float:
    sample = IdSample()
    sample.add(STREAM)
    return TableReads(sample.sampled()).rows("lru", 0.99)


def test_more_rows_are_asked_for_in_time() -> None:
    total = len(STREAM) // BATCH
    growth = TableGrowth([table(2900, Dynamic())], EVERY, 1)
    watched(growth, total // 4)
    (ask,) = growth.asks(total // 4, total)
    assert ask.needed == pytest.approx(true_rows(), rel=0.15)
    assert ask.ask == pytest.approx(1.1 * ask.needed, abs=1)
    assert ask.enough_until is not None
    assert total // 4 <= ask.enough_until < total
    text = ask.because(total // 4, 0.0123)
    assert text.startswith("table 'user' has 2,900 rows, which ")
    assert f"give it {ask.ask:,}; " in text
    assert text.endswith("of its lookups are of new ids, and 1.23% take the row of another id")
    assert growth.asks(total // 4, total) == []  # once


def test_rows_that_are_enough_are_not_asked_for() -> None:
    total = len(STREAM) // BATCH
    growth = TableGrowth([table(50_000, Dynamic())], EVERY, 1)
    watched(growth, total // 4)
    (fill,) = growth.fills(total // 4, total)
    assert fill.enough_until is None
    assert growth.asks(total // 4, total) == []
    seen = np.unique(STREAM[: len(STREAM) * 3 // 4])
    last = STREAM[len(STREAM) * 3 // 4 :]
    watched(growth, total)
    (fill,) = growth.fills(total, total)
    assert fill.new_share == pytest.approx(float(np.isin(last, seen, invert=True).mean()), rel=1.0, abs=0.01)


def test_other_tables_and_few_lookups_say_nothing() -> None:
    growth = TableGrowth([table(10, None)], EVERY, 1)
    watched(growth, 100)
    assert growth.fills(100, 800) == []
    growth = TableGrowth([table(10, Dynamic())], EVERY, 1)
    watched(growth, 8)
    assert growth.fills(8, 800) == []
