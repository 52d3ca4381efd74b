"""Pooling factors, poolings and access profiles are what the data holds: known batches give known numbers."""

import math
import re
import sys
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith import AccessProfile, UsageError, Workload
from recsmith.workloads import load_workload

pytestmark = pytest.mark.usefixtures("torchrec")

# What a table asks for: name, rows, features; a weighted or a sequence table goes into a collection of its own.
SPARSE = [("user", 100, ["user_id"]), ("item", 50, ["clicked", "bought"])]


def observe(batches: Any, model: Any, *rest: Any, **options: Any) -> Workload:
    from recsmith.torchrec import observe

    return observe(batches, model, *rest, **options)


def bags(tables: list[tuple[str, int, list[str]]] = SPARSE, weighted: bool = False) -> Any:
    """A model of one EmbeddingBagCollection, at the path 'sparse'."""
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    configs = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=8, feature_names=features)
        for name, rows, features in tables
    ]
    made = EmbeddingBagCollection(tables=configs, is_weighted=weighted, device=torch.device("meta"))
    return torch.nn.ModuleDict({"sparse": made})


def sequences() -> Any:
    import torch
    from torchrec import EmbeddingCollection, EmbeddingConfig

    config = EmbeddingConfig(name="history", num_embeddings=100, embedding_dim=8, feature_names=["seen"])
    return torch.nn.ModuleDict({"sparse": EmbeddingCollection(tables=[config], device=torch.device("meta"))})


def jagged(features: dict[str, list[list[int]]], weighted: bool = False, vary: bool = False, **more: Any) -> Any:
    """A KeyedJaggedTensor of bags by key; vary: each key has a stride of its own."""
    import torch
    from torchrec import KeyedJaggedTensor

    ids = [i for bags in features.values() for bag in bags for i in bag]
    return KeyedJaggedTensor(
        keys=list(features),
        values=torch.tensor(ids, dtype=torch.int64),
        lengths=torch.tensor([len(bag) for bags in features.values() for bag in bags], dtype=torch.int64),
        weights=torch.ones(len(ids)) if weighted else None,
        stride_per_key_per_rank=[[len(bags)] for bags in features.values()] if vary else None,
        **more,
    )


def batch() -> Any:
    """Two samples: 3 user ids, 4 clicks of which 3 are of one item, 1 purchase of that item."""
    return jagged({"user_id": [[1, 2], [3]], "clicked": [[7, 7, 7], [8]], "bought": [[], [7]]})


def table(workload: Workload, name: str) -> Any:
    return next(table for table in workload.tables if table.name == name)


def shares(**counts: int) -> tuple[float, ...]:
    """17 bins, given as bin0=1, bin2=3."""
    bins = [0] * 17
    for name, count in counts.items():
        bins[int(name.removeprefix("bin"))] = count
    return tuple(count / sum(bins) for count in bins)


def blocks(rows: int, reads: dict[int, int], batches: int = 1) -> Any:
    """Reads of rows, and different rows, by block of a table; each row was in so many batches."""
    count = min(128, rows)
    made = {"block_lookups": [0.0] * count, "block_unique_rows": [0.0] * count}
    for row, times in reads.items():
        made["block_lookups"][row * count // rows] += times
        made["block_unique_rows"][row * count // rows] += batches
    return {name: tuple(values) for name, values in made.items()}


# --- what is measured ---------------------------------------------------------------------------------------------


def test_a_known_batch_gives_known_numbers() -> None:
    workload = observe([batch()], bags(), optimizer="adagrad")
    assert (workload.batch_size, workload.optimizer, workload.source) == (2, "adagrad", "observed: 1 batches")
    (user_id,) = table(workload, "user").features
    assert (user_id.pooling_factor, user_id.num_poolings, user_id.weighted) == (1.5, 1.0, False)
    rows = table(workload, "user").num_embeddings
    where = blocks(rows, {1: 1, 2: 1, 3: 1})
    counted = AccessProfile(reuse_bins=shares(bin0=1), lookups=3, unique_rows=3, **where)
    assert replace(table(workload, "user").access, busiest_lookups=None, busiest_deviation=None) == counted
    clicked, bought = table(workload, "item").features
    assert (clicked.name, clicked.pooling_factor, bought.name, bought.pooling_factor) == ("clicked", 2.0, "bought", 0.5)
    # Row 7 is read four times, by two features; row 8 once.
    where = blocks(table(workload, "item").num_embeddings, {7: 4, 8: 1})
    counted = AccessProfile(reuse_bins=shares(bin0=1, bin2=1), lookups=5, unique_rows=2, **where)
    item = table(workload, "item").access
    assert replace(item, busiest_lookups=None, busiest_deviation=None) == counted
    assert item.busiest_lookups[0] == 1, "both rows are in the first half"


def test_all_but_the_amounts_is_read_workloads() -> None:
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.torchrec import read_workload

    seen, read = observe([batch()], bags()), read_workload(bags(), get_default_sharders(), batch_size=2)
    plain = [
        replace(table, access=None, features=tuple(replace(f, pooling_factor=1.0) for f in table.features))
        for table in seen.tables
    ]
    assert tuple(plain) == read.tables
    assert seen.tables[0].collection == "sparse"


def test_amounts_are_means_over_batches_and_reads_are_counted_within_one() -> None:
    twice = [jagged({"user_id": [[1, 1, 1]]}), jagged({"user_id": [[1], [2], [], [5]]})]
    workload = observe(twice, bags(SPARSE[:1]))
    (user_id,) = table(workload, "user").features
    assert workload.batch_size == round((1 + 4) / 2)
    assert user_id.pooling_factor == 6 / 5
    # Row 1 is read 3 times in one batch and once in the other, never 4 times.
    access = table(workload, "user").access
    assert (access.reuse_bins, access.lookups, access.unique_rows) == (shares(bin0=3, bin2=1), 3, 2)
    assert access.block_lookups[:6] == (0, 4, 1, 0, 0, 1)
    assert access.block_unique_rows[:6] == (0, 2, 1, 0, 0, 1)


@pytest.mark.parametrize("reads", [1, 2, 3, 4, 5, 16_384, 16_385, 32_768, 32_769, 100_000])
def test_bins_are_neuroshards(reads: int) -> None:
    workload = observe([jagged({"user_id": [[9] * reads]})], bags(SPARSE[:1]))
    expected = min(16, math.ceil(math.log2(reads)))
    assert table(workload, "user").access.reuse_bins.index(1.0) == expected


def test_many_ids_agree_with_counting_them_one_by_one() -> None:
    from collections import Counter

    import torch

    lists = [(torch.rand(500, generator=torch.Generator().manual_seed(i)) ** 4 * 100).long() for i in range(3)]
    workload = observe([jagged({"user_id": [ids.tolist()]}) for ids in lists], bags(SPARSE[:1]))
    bins: Counter[int] = Counter()
    for ids in lists:
        bins.update(min(16, math.ceil(math.log2(reads))) for reads in Counter(ids.tolist()).values())
    access: Any = table(workload, "user").access
    assert access.reuse_bins == tuple(bins[i] / bins.total() for i in range(17))
    assert (access.lookups, access.unique_rows) == (500, round(bins.total() / 3))


def test_a_feature_shared_by_two_tables_is_read_by_both() -> None:
    workload = observe([jagged({"f": [[1, 2], [3]]})], bags([("a", 10, ["f"]), ("b", 20, ["f"])]))
    assert [table.features[0].pooling_factor for table in workload.tables] == [1.5, 1.5]
    assert [table.access and table.access.lookups for table in workload.tables] == [3, 3]


def test_variable_strides_give_poolings_per_sample() -> None:
    strides = jagged({"user_id": [[1, 2]], "clicked": [[1], [2], [3], [4]], "bought": [[], []]}, vary=True)
    workload = observe([strides], bags())
    clicked, bought = table(workload, "item").features
    (user_id,) = table(workload, "user").features
    assert workload.batch_size == 4
    assert [feature.num_poolings for feature in (user_id, clicked, bought)] == [0.25, 1.0, 0.5]
    assert [feature.pooling_factor for feature in (user_id, clicked, bought)] == [2.0, 1.0, 0.0]


def test_inverse_indices_tell_the_samples_of_a_deduplicated_batch() -> None:
    import torch

    inverse = (["user_id"], torch.tensor([[0, 1, 1, 0, 0, 0, 1, 1]]))
    workload = observe([jagged({"user_id": [[1], [2, 3]]}, vary=True, inverse_indices=inverse)], bags(SPARSE[:1]))
    (user_id,) = table(workload, "user").features
    assert (workload.batch_size, user_id.num_poolings, user_id.pooling_factor) == (8, 0.25, 1.5)


def test_a_given_batch_size_changes_nothing_that_is_measured() -> None:
    from dataclasses import replace

    assert observe([batch()], bags(), batch_size=8192) == replace(observe([batch()], bags()), batch_size=8192)


def test_weights_count_where_the_model_reads_them() -> None:
    def weighted(model: Any, features: dict[str, list[list[int]]], with_weights: bool) -> bool:
        return observe([jagged(features, weighted=with_weights)], model).tables[0].weighted

    ids = {"user_id": [[1]]}
    assert weighted(bags(SPARSE[:1], weighted=True), ids, True)
    assert weighted(bags(SPARSE[:1], weighted=True), ids, False)  # such as position weights, made in the model
    assert not weighted(bags(SPARSE[:1]), ids, True)  # the collection does not read them
    assert weighted(sequences(), {"seen": [[1, 2]]}, True)
    assert not weighted(sequences(), {"seen": [[1, 2]]}, False)


def test_a_feature_without_ids_has_pooling_0_and_its_table_no_profile() -> None:
    empty = jagged({"user_id": [[], []], "clicked": [[1], []], "bought": [[], []]})
    workload = observe([empty], bags())
    (user_id,) = table(workload, "user").features
    assert (user_id.pooling_factor, user_id.num_poolings, table(workload, "user").access) == (0.0, 1.0, None)
    assert [feature.pooling_factor for feature in table(workload, "item").features] == [0.5, 0.0]


def test_a_rare_table_has_at_least_one_lookup_per_batch() -> None:
    rare = [jagged({"user_id": [[i] if i == 3 else []]}) for i in range(10)]
    access: Any = table(observe(rare, bags(SPARSE[:1])), "user").access
    assert (access.lookups, access.unique_rows) == (1, 1)


def test_a_feature_that_some_batches_lack_counts_nothing_there() -> None:
    workload = observe([jagged({"user_id": [[1, 2]]}), jagged({"other": [[5]]})], bags(SPARSE[:1]))
    assert table(workload, "user").features[0].pooling_factor == 2.0
    assert workload.batch_size == 1


def test_batches_and_threads_are_left_as_they_were() -> None:
    import torch

    given, threads = batch(), torch.get_num_threads()
    before = given.values().clone(), given.lengths().clone()
    torch.set_num_threads(2)  # workers of `make test` have one
    try:
        assert observe([given], bags()) == observe([given], bags())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert (given.values() == before[0]).all()
    assert (given.lengths() == before[1]).all()


# --- where batches come from --------------------------------------------------------------------------------------


def test_no_more_than_count_batches_are_taken() -> None:
    taken = 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield batch()

    source = endless()
    assert observe(source, bags(), count=3).source == "observed: 3 batches"
    assert taken == 3
    next(source)
    assert taken == 4


def test_fewer_batches_than_count_are_enough() -> None:
    assert observe([batch()] * 2, bags(), count=50).source == "observed: 2 batches"


def test_a_data_loader_is_read() -> None:
    from torch.utils.data import DataLoader

    loader = DataLoader([batch() for _ in range(4)], batch_size=None)  # type: ignore[arg-type]
    assert observe(loader, bags()).source == "observed: 4 batches"


@dataclass
class Holder:
    """A batch of a class."""

    labels: Any
    sparse: Any


class Plain:
    """A batch of a class that is no dataclass."""

    def __init__(self, sparse: Any) -> None:
        self.sparse = sparse
        self.again = sparse

    @property
    def costly(self) -> Any:
        raise AssertionError("properties are not called")


Named = namedtuple("Named", ["labels", "sparse"])


def test_tensors_are_found_where_batches_hold_them() -> None:
    import torch
    from torchrec.datasets.utils import Batch

    one, labels = batch(), torch.zeros(2)
    expected = observe([one], bags())
    holders = [
        Batch(dense_features=labels, sparse_features=one, labels=labels),
        Holder(labels, one),
        Plain(one),
        Named(labels, one),
        (labels, one),
        [labels, {"sparse": one}],
        {"inputs": Holder(labels, one), "labels": labels},
        Holder("text", (one, one)),
    ]
    for holder in holders:
        assert observe([holder], bags()) == expected, holder


def test_features_may_be_spread_over_several_tensors_of_different_strides() -> None:
    user, item = jagged({"user_id": [[1, 2]]}), jagged({"clicked": [[1], [2]], "bought": [[3], []], "more": [[1], [1]]})
    workload = observe([{"user": user, "item": item}], bags())
    assert workload.batch_size == 2
    assert table(workload, "user").features[0].num_poolings == 0.5
    assert table(workload, "item").features[1].pooling_factor == 0.5


def test_of_two_tensors_with_a_feature_the_one_weighted_as_the_table_is_read() -> None:
    both = (jagged({"user_id": [[1]]}), jagged({"user_id": [[1, 2, 3]]}, weighted=True))
    assert observe([both], bags(SPARSE[:1])).tables[0].features[0].pooling_factor == 1
    assert observe([both], bags(SPARSE[:1], weighted=True)).tables[0].features[0].pooling_factor == 3


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(batches: Any, *words: str, model: Any = None, **options: Any) -> None:
    with pytest.raises(UsageError) as error:
        observe(batches, model if model is not None else bags(), **options)
    for word in words:
        assert word in str(error.value)


def test_no_batch_is_refused() -> None:
    refused([], "batches is empty", "give at least one")


def test_batches_without_samples_are_refused() -> None:
    import torch
    from torchrec import KeyedJaggedTensor

    none = torch.tensor([], dtype=torch.int64)
    empty = KeyedJaggedTensor(keys=["user_id"], values=none, lengths=none)
    refused([empty], "1 batches hold no samples", model=bags(SPARSE[:1]))


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_1_is_refused(count: int) -> None:
    refused([batch()], f"count is {count}", count=count)


def test_a_batch_size_of_0_is_refused() -> None:
    refused([batch()], "batch_size is 0", batch_size=0)


def test_what_is_no_iterable_of_batches_is_refused() -> None:
    refused(batch(), "one KeyedJaggedTensor", "[batch]")
    refused(7, "batches is a int", "DataLoader")


def test_batches_without_jagged_tensors_are_refused_with_the_types_seen() -> None:
    import torch

    refused([(torch.zeros(2), {"x": 1})], "batch 0", "no KeyedJaggedTensor", "tuple, Tensor, dict, int")
    refused([[[[batch()]]]], "2 levels deep", "types seen: list;")


def test_a_feature_in_no_batch_is_refused_with_the_keys_seen() -> None:
    refused(
        [jagged({"user_id": [[1]], "clicks": [[1]]})],
        "feature 'clicked' of table 'item'", "none of the 1 batches", "keys seen: clicks, user_id",
    )  # fmt: skip


def test_many_keys_are_not_all_listed() -> None:
    refused([jagged({f"k{i:03}": [[1]] for i in range(100)})], "k000, k001", "and 80 more")


@pytest.mark.parametrize("bad", [100, -1, 10**12])
def test_ids_outside_the_table_are_refused(bad: int) -> None:
    rows = jagged({"user_id": [[0, 99, bad]]})
    refused([rows], f"id {bad} is outside table 'user'", "100 rows", "ids 0 to 99", model=bags(SPARSE[:1]))


def test_ids_that_are_no_whole_numbers_are_refused() -> None:
    import torch
    from torchrec import KeyedJaggedTensor

    halves = KeyedJaggedTensor(keys=["user_id"], values=torch.tensor([0.5]), lengths=torch.tensor([1]))
    refused([halves], "table 'user'", "torch.float32", model=bags(SPARSE[:1]))


def test_a_feature_in_two_tensors_is_refused_with_their_places() -> None:
    both = Holder(jagged({"user_id": [[1]]}), {"x": jagged({"user_id": [[2]]})})
    refused([both], "feature 'user_id'", "batch.labels, batch.sparse['x']", model=bags(SPARSE[:1]))


def test_a_model_without_tables_is_refused_before_any_batch_is_taken() -> None:
    import torch

    source = iter([batch()])
    refused(source, "no embedding collection", model=torch.nn.Linear(1, 1))
    assert len(list(source)) == 1


# --- from data to a plan ------------------------------------------------------------------------------------------


def test_what_is_observed_is_saved_loaded_and_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from recsmith.cli import main

    empty = jagged({"user_id": [[], []], "clicked": [[1], []], "bought": []}, vary=True)
    for number, data in enumerate([[batch()] * 3, [empty]]):
        observed = observe(data, bags())
        file, plan = str(tmp_path / f"tables-{number}.json"), str(tmp_path / f"plan-{number}.json")
        recsmith.save_workload(observed, file)
        assert load_workload(file) == observed
        monkeypatch.setattr(sys, "argv", ["recsmith", "plan", file, "--cluster", "h100:2", "-o", plan])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, capsys.readouterr().err
        planned = {table.name: table for table in recsmith.load_plan(plan).workload.tables}
        assert planned == {table.name: table for table in observed.tables}


def test_a_workload_is_not_saved_as_csv(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape("written as JSON")):
        recsmith.save_workload(observe([batch()], bags()), str(tmp_path / "tables.csv"))
    assert not list(tmp_path.iterdir())
