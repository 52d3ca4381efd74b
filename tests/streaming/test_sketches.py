"""Sketches: near the truth within their stated errors, the same merged or not; workloads of them."""

import base64
import json

import numpy as np
import pytest

pytest.importorskip("datasketches")

from recsmith._random import ZipfLaw
from recsmith.errors import CorruptFile, UsageError
from recsmith.streaming.live_workload import counted_access, live_workload
from recsmith.streaming.sketches import IdSketch
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.reuse import Reuse


def draw(seed: int, lookups: int, rows: int = 100_000, zipf: float = 1.05) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths of bags of 0 to 3."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, 4, lookups).astype(np.int32)
    values = np.asarray(ZipfLaw(rows, zipf).ranks(chance.random(int(lengths.sum()))), np.int64)
    return values, lengths


def sketch_of(*parts: tuple[np.ndarray, np.ndarray]) -> IdSketch:
    made = IdSketch()
    for values, lengths in parts:
        made.count(len(lengths), len(values))
        made.update(values, lengths)
    return made


def test_a_sketch_is_near_the_truth() -> None:
    values, lengths = draw(0, 20_000)
    sketch = sketch_of((values, lengths))
    ids, counts = np.unique(values, return_counts=True)
    assert sketch.distinct == pytest.approx(len(ids), rel=4 * 0.016)
    true = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    frequent = sketch.frequent(20)
    assert {item for item, _ in frequent} >= set(ids[np.argsort(-counts)][:10].tolist())
    assert all(abs(share - true[item] / len(values)) <= 3.5 / 1024 for item, share in frequent)
    hot = ids[np.argsort(-counts)][:50]
    assert 0 <= sketch.share_in(hot) - np.isin(values, hot).mean() <= 50 * 2.72 / 1024
    assert sketch.length(0.5) == pytest.approx(float(np.median(lengths)), abs=1)
    assert (sketch.bags, sketch.lookups, sketch.sketched) == (20_000, len(values), len(values))


@pytest.mark.parametrize("ranks", [2, 5])
def test_sketches_merged_over_ranks_are_those_of_one(ranks: int) -> None:
    parts = [draw(seed, 4000) for seed in range(10)]
    whole = sketch_of(*parts)
    merged = sketch_of(*parts[::ranks])
    for rank in range(1, ranks):
        other = sketch_of(*parts[rank::ranks])
        merged.merge(IdSketch.from_raw(json.loads(json.dumps(other.to_raw())), "a rank's sketch"))
    assert (merged.bags, merged.lookups, merged.sketched) == (whole.bags, whole.lookups, whole.sketched)
    assert merged.distinct == pytest.approx(whole.distinct, rel=2 * 0.016)
    one, other = dict(whole.frequent(30)), dict(merged.frequent(30))
    assert len(one.keys() & other.keys()) >= 20
    assert all(abs(one[item] - other[item]) <= 2 * 3.5 / 1024 for item in one.keys() & other.keys())
    for item in range(0, 3000, 7):  # count-min adds up exactly
        assert merged.share_in(np.array([item])) == pytest.approx(whole.share_in(np.array([item])))
    for rank in (0.1, 0.5, 0.9):
        assert abs(merged.length(rank) - whole.length(rank)) <= 1


def test_new_ids_are_those_that_no_sketch_before_has_seen() -> None:
    before = sketch_of((np.arange(5000), np.ones(5000, np.int32)))
    same = sketch_of((np.arange(5000)[::-1], np.ones(5000, np.int32)))
    other = sketch_of((np.arange(2500, 7500), np.ones(5000, np.int32)))
    assert same.new_share(before) == pytest.approx(0, abs=0.03)
    assert other.new_share(before) == pytest.approx(0.5, abs=0.08)


def test_damaged_state_is_refused() -> None:
    raw = sketch_of(draw(1, 100)).to_raw()
    for changed in (
        {"schema": "recsmith/id-sketch/0"}, {"distinct": "AAAA"}, {"counts": "?"}, {"lengths": None}, {"bags": "many"},
        {"frequent": raw["frequent"][: len(raw["frequent"]) // 8 * 4]},
    ):  # fmt: skip
        with pytest.raises(CorruptFile):
            IdSketch.from_raw({**raw, **changed}, "file")
    with pytest.raises(CorruptFile, match="holds no sketch"):
        IdSketch.from_raw({"schema": raw["schema"]}, "file")
    with pytest.raises(UsageError, match="add up to 3"):
        IdSketch().update(np.arange(2), np.array([3]))
    with pytest.raises(UsageError, match="a bag has -1 ids; lengths are 0 or more"):
        IdSketch().update(np.arange(2), np.array([3, -1]))
    with pytest.raises(UsageError, match="the id -4 is no row of a table"):
        IdSketch().update(np.array([1, -4]), np.array([2]))
    with pytest.raises(UsageError, match="the id 10 is no row of a table of 10 rows, and is not sketched"):
        IdSketch(rows=10).update(np.array([1, 10]), np.array([2]))
    with pytest.raises(UsageError, match="-1 bags of -5 ids cannot be counted"):
        IdSketch().count(-1, -5)


def test_a_file_whose_numbers_cannot_be_is_refused() -> None:
    """Sums of parts are those that were counted, sizes those that merge, signs right."""
    raw = sketch_of(draw(0, 300)).to_raw()
    other = sketch_of(draw(1, 200)).to_raw()
    made = IdSketch()._library
    wide = base64.b64encode(made.count_min_sketch(5, 1024).serialize()).decode()
    lengths = made.kll_ints_sketch(200)
    lengths.update(np.array([-3], np.int32))
    wrong = (
        {"bags": -1}, {"lookups": 0.5}, {"sketched": "9"}, {"bags": 2**70}, {"sketched": raw["sketched"] + 1},
        {"bags": 1}, {"counts": other["counts"]}, {"frequent": other["frequent"]},
        {"lookups": raw["sketched"] - 1}, {"counts": wide},
        {"lengths": base64.b64encode(lengths.serialize()).decode()},
        {"distinct": base64.b64encode(made.hll_sketch(9, made.HLL_8).serialize_compact()).decode()},
    )  # fmt: skip
    IdSketch.from_raw(raw, "it")
    for change in wrong:
        with pytest.raises(CorruptFile, match=r"it holds no sketch of ids: .*; it is damaged"):
            IdSketch.from_raw({**raw, **change}, "it")


@pytest.mark.parametrize("zipf", [0.0, 0.6, 1.05, 1.4])
@pytest.mark.parametrize("rows", [1000, 1_000_000])
def test_a_workload_of_sketches_has_their_lengths_and_law(zipf: float, rows: int) -> None:
    tables = (
        Table(
            name="t",
            num_embeddings=rows,
            embedding_dim=16,
            features=(Feature(name="f", pooling_factor=9.0), Feature(name="g", pooling_factor=2.0)),
        ),
        Table(
            name="u",
            num_embeddings=50,
            embedding_dim=16,
            features=(Feature(name="h", pooling_factor=1.0),),
            access=AccessProfile(zipf=0.5),
        ),
    )
    workload = Workload(tables=tables, batch_size=64, optimizer="sgd")
    values, lengths = draw(3, 20_000, rows, zipf)
    live = live_workload(workload, {"f": sketch_of((values, lengths))})
    table, other = live.tables
    assert table.features[0].pooling_factor == pytest.approx(len(values) / len(lengths))
    assert table.features[1] == tables[0].features[1]
    assert other == tables[1]
    reuse, first = Reuse.of([table]), np.zeros(1, np.int64)
    counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
    assert reuse.unique_rows(first, np.array([float(len(values))])) == pytest.approx(len(counts), rel=0.05)
    batches = [len(np.unique(np.random.default_rng(seed).choice(values, 1000))) for seed in range(20)]
    assert reuse.unique_rows(first, np.array([1000.0])) == pytest.approx(np.mean(batches), rel=0.25)
    for top in (100, 1000):
        share = counts[:top].sum() / len(values)
        assert reuse.hot_share(first, np.array([float(top)])) == pytest.approx(
            share, rel=0.25, abs=0.08
        )  # even reading has no most read rows


def test_rows_that_are_never_read_do_not_steepen_what_is_read() -> None:
    """Ids in use are a part of a table's rows, as of films numbered with gaps: a law of all rows told 63 % for 5 %."""
    drawn = np.random.default_rng(0).gamma(0.5, size=9000).clip(1e-3)
    values = np.random.default_rng(1).choice(9000, 100_000, p=drawn / drawn.sum())
    counts = np.sort(np.unique(values, return_counts=True)[1])[::-1]
    sketch = sketch_of(*((part, np.ones(len(part), np.int32)) for part in np.split(values, 500)))
    for rows in (9000, 160_000):
        reuse, first = Reuse.of([Table(name="t", num_embeddings=rows, embedding_dim=4,
                                       features=(Feature(name="f", pooling_factor=1.0),),
                                       access=counted_access(sketch, rows))]), np.zeros(1, np.int64)  # fmt: skip
        assert reuse.hot_share(first, np.array([20.0])) == pytest.approx(counts[:20].sum() / len(values), abs=0.02)
        batches = [len(np.unique(np.random.default_rng(seed).choice(values, 1024))) for seed in range(20)]
        assert reuse.unique_rows(first, np.array([1024.0])) == pytest.approx(np.mean(batches), rel=0.15)


def test_reads_of_blocks_of_rows_are_exact_merge_and_reach_the_profile() -> None:
    draw, rows = np.random.default_rng(3), 1000
    parts = [draw.integers(0, 250, 4000), draw.integers(0, rows, 1000)]
    sketches = [IdSketch(blocks_of=rows) for _ in parts]
    for sketch, ids in zip(sketches, parts, strict=True):
        sketch.count(len(ids), len(ids))
        sketch.update(ids, np.ones(len(ids), np.int32))
    together = IdSketch()
    for sketch in sketches:
        together.merge(IdSketch.from_raw(sketch.to_raw(), "raw"))
    assert together.blocks == np.bincount(np.concatenate(parts) * 128 // rows, minlength=128).tolist()
    access = counted_access(together, rows)
    assert access.block_lookups == tuple(together.blocks)
    assert access.busiest_lookups is not None
    assert access.busiest_lookups[:2] == pytest.approx((0.8 + 0.2 / 2, 0.8 + 0.2 / 4), abs=0.02)
    damaged = sketches[0].to_raw() | {"blocks": [1, 2]}
    with pytest.raises(CorruptFile, match="'blocks' is of 3 ids, and 4,000 were sketched"):
        IdSketch.from_raw(damaged, "raw")
    with pytest.raises(CorruptFile, match="'busiest' are not 7 numbers from 0 to the 4,000 ids"):
        IdSketch.from_raw(sketches[0].to_raw() | {"busiest": [9e9] * 7}, "raw")


def test_blocks_are_not_counted_where_ids_are_no_rows_or_one_sketch_has_none() -> None:
    beyond, inside, plain = IdSketch(blocks_of=10), IdSketch(blocks_of=10), IdSketch()
    for sketch, ids in ((beyond, [3, 10]), (inside, [3, 4]), (plain, [3, 4])):
        sketch.count(1, 2)
        sketch.update(np.array(ids), np.array([2], np.int32))
    assert (beyond.blocks, inside.blocks[3:5], plain.blocks) == ([], [1, 1], [])
    assert counted_access(beyond, 11).block_lookups is None
    inside.merge(plain)
    assert inside.blocks == []


def test_a_workload_needs_features_that_it_has() -> None:
    workload = Workload(
        tables=(Table(name="t", num_embeddings=9, embedding_dim=4, features=(Feature(name="f", pooling_factor=1.0),)),),
        batch_size=1,
        optimizer="sgd",
    )
    with pytest.raises(UsageError, match="no table has a feature 'g'; those of the workload are f"):
        live_workload(workload, {"g": IdSketch()})
    with pytest.raises(UsageError, match="nothing was sketched yet"):
        live_workload(workload, {"f": IdSketch()})
