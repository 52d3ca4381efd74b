"""What a dataset and the sketches of a job ask of tables, and what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import GeneratedFeature, GeneratorSpec, open_dataset
from recsmith.errors import UsageError
from recsmith.streaming.capacity import Asked, Capacity, StreamReader
from recsmith.streaming.capacity.prices import row_bytes, served_at, sized_tables, workload_of

SPEC = GeneratorSpec(
    num_samples=10_000,
    features=(
        GeneratedFeature(name="user", num_embeddings=2**40, zipf=1.1),
        GeneratedFeature(name="tags", num_embeddings=500, zipf=1.0, pooling_factor=3.0, lengths="poisson"),
    ),
)


def capacity(**asked: Any) -> Capacity:
    reader = StreamReader(open_dataset(SPEC), Asked(**asked))
    assert reader.read()
    return reader.capacity("spec.yaml")


def test_a_stream_is_told_feature_by_feature() -> None:
    found = capacity(policies=("lfu", "lru"))
    user, tags = found.features
    assert (found.samples, found.whole, user.feature, tags.feature) == (10_000, None, "user", "tags")
    assert user.lookups == 10_000
    assert user.over_time[-1] == user.distinct
    assert list(user.over_time) == sorted(user.over_time)
    assert user.reachable == pytest.approx(1 - user.distinct / 10_000)
    assert tags.distinct <= 500
    assert [each.policy for each in user.policies] == ["lfu", "lru"]
    for each in user.policies:
        assert list(each.served) == sorted(each.served)
        assert each.served[-1] == pytest.approx(user.reachable)
        assert each.low == each.rows == each.high <= user.distinct


def test_a_part_of_the_stream_tells_the_whole() -> None:
    found = capacity(samples=1000, features=("user",))
    (user,) = found.features
    assert (found.samples, found.whole) == (1000, 10_000)
    assert user.forecast is not None
    (true,) = capacity(features=("user",)).features
    assert user.forecast.lookups == 10_000
    assert user.forecast.rows["lru"] == pytest.approx(true.policies[0].rows, rel=0.4)  # of 1,000 lookups


def test_admission_leaves_ids_without_rows() -> None:
    one, two = (capacity(features=("user",), admit=admit).features[0] for admit in (1, 2))
    assert two.reachable < one.reachable
    assert two.policies[0].rows < one.policies[0].rows


def test_sizes_are_priced() -> None:
    found = capacity(policies=("lru",))
    made = sized_tables(found, _workloads(found))
    assert [each.times for each in made] == [0.25, 0.5, 1.0, 2.0]
    at_one = made[2]
    assert at_one.rows == sum(each.policies[0].rows for each in found.features)
    assert at_one.bytes == at_one.rows * row_bytes(16, "adagrad") == at_one.rows * (16 * 4 + 16 * 4)
    assert [each.served for each in made] == sorted(each.served for each in made)
    for each in found.features:
        assert served_at(each, 1.0) == pytest.approx(0.99 * each.reachable, abs=0.02)


def _workloads(found: Capacity) -> Callable[[float], Any]:
    return lambda times: workload_of(found, times, batch_size=64, embedding_dim=16, optimizer="adagrad")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"features": ("usr",)}, r"the data has no feature 'usr'; did you mean 'user'"),
        ({"serve": 1.0}, r"serve is 1, and it is a share above 0 and below 1: no bounded table serves all lookups"),
        ({"serve": float("nan")}, r"serve.* is nan"),
        ({"policies": ("fifo",)}, r"no policy is called 'fifo'; there are lru, lfu, age"),
        ({"admit": 0}, r"admit is 0; an id gets a row when it was seen once or more"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capacity(**asked)


def _sketched(folder: Path, ids: np.ndarray, name: str = "user") -> None:
    pytest.importorskip("datasketches")
    from recsmith.streaming.sketch_files import SketchFiles

    files, ones = SketchFiles(folder, 0, (name,), 100, looks=4), np.ones(250, np.int32)
    for step in range(1, len(ids) // 1000 + 1):
        if step % 4 == 0:
            batch = ids[(step - 1) * 1000 : step * 1000]
            files.add(name, np.ones(1000, np.int32), batch[:250], ones)
        if step % 100 == 0:
            files.write(step)


def test_sketches_of_a_job_tell_within_their_interval(tmp_path: Path) -> None:
    from recsmith.streaming.capacity import TableReads
    from recsmith.streaming.capacity.drawn import drawn
    from recsmith.streaming.capacity.law import IdLaw
    from recsmith.streaming.capacity.of_sketches import capacity_of_job

    stream = drawn(IdLaw(power=0.8, shift=0.0, places=3000.0, churn=0.0), 400_000, 2**20)
    ids = stream.ids
    _sketched(tmp_path, ids)
    found = capacity_of_job(str(tmp_path), Asked(policies=("lru",)))
    (user,) = found.features
    assert (found.samples, found.by_law) == (len(ids) // 100_000 * 100_000, True)
    assert user.distinct == pytest.approx(TableReads(stream).distinct, rel=0.2)
    (rows,) = user.policies
    assert rows.low <= TableReads(stream).rows("lru", 0.99) <= rows.high
    assert rows.high < 2 * rows.low


def test_sketches_of_other_data_are_refused(tmp_path: Path) -> None:
    from recsmith.planning import plan
    from recsmith.plans import save_plan
    from recsmith.streaming.capacity.of_sketches import capacity_of_job
    from recsmith.workloads import Feature, Table, Workload

    _sketched(tmp_path, np.random.default_rng(0).integers(0, 900, 200_000))
    with pytest.raises(UsageError, match=r"the sketches have no feature 'usr'; did you mean 'user'"):
        capacity_of_job(str(tmp_path), Asked(features=("usr",)))
    table = Table(name="t", num_embeddings=10, embedding_dim=4, features=(Feature(name="item", pooling_factor=1.0),))
    save_plan(plan(Workload(batch_size=8, optimizer="sgd", tables=(table,)), "cpu:1").plan, tmp_path / "plan.json")
    with pytest.raises(UsageError, match=r"sketches of feature 'user', which no table of its plan reads \(item\)"):
        capacity_of_job(str(tmp_path), Asked())
    for file in (tmp_path / "watch").iterdir():
        file.write_text("{}")  # of a job without features
    with pytest.raises(UsageError, match="nothing was sketched yet"):
        capacity_of_job(str(tmp_path), Asked())
