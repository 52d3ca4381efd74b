"""Sums of columns: the same on any ranks and after a restart; faults that only ids and labels together show."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("river")

from recsmith.data import Batch, JaggedIds
from recsmith.errors import CorruptFile
from recsmith.streaming.causes import Causes
from recsmith.streaming.column_sums import ColumnSums
from recsmith.streaming.hot_sets import packed
from recsmith.streaming.job_sums import JobLayout
from recsmith.streaming.known_ids import KnownIds

SAMPLES, LOOKS, CALM = 512, 8, 70
LAYOUT = JobLayout(("user", "item"), ("d",), 1, ((1.0,),) * 2, ("click",))
EFFECT = np.random.default_rng(7).normal(size=400)  # of each item on the label


def bags(values: np.ndarray, length: int) -> JaggedIds:
    """Bags of as many ids each."""
    return JaggedIds(values=values, lengths=np.full(len(values) // length, length, np.int32))


def batch(step: int) -> Batch:
    """A step of a job whose labels follow from the item, and a little from the dense column."""
    chance = np.random.default_rng(step)
    items, users = chance.integers(0, 400, SAMPLES), chance.zipf(1.2, 2 * SAMPLES) % 10**6
    dense = chance.normal(2, 1, (SAMPLES, 1)).astype(np.float32)
    logits = EFFECT[items] + 0.5 * (dense[:, 0] - 2) - 1
    labels = (chance.random(SAMPLES) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    ids = {
        "user": bags(users, 2),
        "item": bags(items, 1),
    }
    numbers = SAMPLES * step + np.arange(SAMPLES)
    return Batch(dense=dense, ids=ids, labels=labels[:, None], label_names=("click",), sample_ids=numbers)


def of_item(values: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batch], Batch]:
    return lambda batch: replace(
        batch, ids={**batch.ids, "item": replace(batch.ids["item"], values=values(batch.ids["item"].values))}
    )


def of_user(batch: Batch) -> Batch:
    cut = bags(batch.ids["user"].values[::2], 1)
    return replace(batch, ids={**batch.ids, "user": cut})


FAULTS: dict[str, tuple[Callable[[Batch], Batch], tuple[str, str], str]] = {
    "ids of other rows": (of_item(lambda ids: np.roll(ids, 1)), ("joined_rows", "item"), "goes with the label by"),
    "labels of other rows": (
        lambda batch: replace(batch, labels=np.roll(batch.labels, 1, 0)),
        ("joined_rows", "click"), "the columns say less of label 'click'"),
    "another vocabulary": (of_item(lambda ids: ids + 10**6), ("new_ids", "item"), "the ids of feature 'item' are new"),
    "corrupt": (
        lambda batch: replace(batch, corrupt=40), ("corrupt_samples", ""), "7.2% of the samples cannot be read"),
    "bags cut": (of_user, ("bag_length", "user"), "feature 'user' has 1 ids a sample"),
    "no numbers": (
        lambda batch: replace(batch, dense=np.where(np.arange(SAMPLES)[:, None] % 4, batch.dense, np.float32("nan"))),
        ("missing_values", "d"), "25% of dense column 'd' are missing (0, or no number)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_column_is_told_with_it_and_a_calm_stream_tells_nothing(fault: str) -> None:
    change, wanted, said = FAULTS[fault]
    columns, causes = ColumnSums(LAYOUT, (2, 1), SAMPLES, 1, [0]), Causes(LAYOUT)
    found = []
    for step in range(CALM + 8):
        columns.add(batch(step) if step < CALM else change(batch(step)))
        told = causes.look(columns.take())
        columns.known.look(lambda bits: bits)
        assert step >= CALM or not told
        found += told
    assert (found[0].kind, found[0].of) == wanted
    assert said in found[0].because
    assert found[0].looks <= 8


def test_ranks_and_restarts_add_up_the_same() -> None:
    """Ids of a part of the samples, which a hash chooses; a restart within a look, on as many ranks and on fewer."""

    def halves(step: int, rank: int) -> Batch:
        return batch(step).take(np.arange(rank, SAMPLES, 2))

    whole = ColumnSums(LAYOUT, (2, 1), 8 * SAMPLES, LOOKS, [0])
    ranks = [ColumnSums(LAYOUT, (2, 1), 8 * SAMPLES, LOOKS, [0]) for _ in range(2)]
    assert [step for step in range(1, 17) if whole.counts(step)] == [8, 16]
    for step in range(4):
        whole.add(batch(step))
        for rank, each in enumerate(ranks):
            each.add(halves(step, rank))
        texts = [each.mine() for each in ranks]
        again = [ColumnSums(LAYOUT, (2, 1), 8 * SAMPLES, LOOKS, [0]) for _ in range(2)]
        for rank, each in enumerate(again):
            each.go_on(texts, rank, 2)
            assert (each.sums.vector == ranks[rank].sums.vector).all()
        one = ColumnSums(LAYOUT, (2, 1), 8 * SAMPLES, LOOKS, [0])
        one.go_on(texts, 0, 1)
        assert (one.sums.buckets == whole.sums.buckets).all()
        assert one.sums.dense == pytest.approx(whole.sums.dense, rel=1e-12)
    assert 0 < whole.sums.buckets[1, 0].sum() < 0.7 * 4 * SAMPLES
    both = ranks[0].known.merged(lambda bits: np.maximum(bits, ranks[1].known._read))
    assert both.to_raw() == whole.known.to_raw()


def test_states_that_cannot_be_are_refused() -> None:
    columns = ColumnSums(LAYOUT, (2, 1), SAMPLES, 1, [0])
    for vector in (np.full(LAYOUT.size, np.nan), np.zeros(3)):
        with pytest.raises(CorruptFile, match="it is damaged"):
            columns.go_on([packed(vector.view(np.int64))], 0, 1)
    with pytest.raises(CorruptFile, match="ids of other features"):
        KnownIds(2).from_raw(KnownIds(3).to_raw())
    with pytest.raises(CorruptFile, match="it is of other columns"):
        Causes(LAYOUT).levels.levels.from_raw({"_kept": [packed(np.zeros(3, np.int64))] * 2})
