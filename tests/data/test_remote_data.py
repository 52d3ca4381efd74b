"""Data in a store is the data of the same files here: samples, digests, positions, faults; also when lines are cut."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stores import Store, cut_line, one_in

from recsmith.data import Batch, ColumnFeature, Dataset, GeneratedFeature, GeneratorSpec, open_dataset, write_dataset
from recsmith.data.checking import check_spec
from recsmith.data.converting import FileLayout, convert_dataset
from recsmith.data.dataset import load_spec
from recsmith.data.parquet.spec import ParquetSpec
from recsmith.data.text.spec import JoinedFile, TextSpec
from recsmith.errors import CorruptFile, RecSmithError, UsageError

GENERATED = GeneratorSpec(
    num_samples=6_000, dense=2,
    features=(GeneratedFeature(name="user", num_embeddings=500), GeneratedFeature(name="tags", num_embeddings=40)),
)  # fmt: skip


def put_folder(store: Store, folder: Path) -> str:
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"{folder.name}/{path.relative_to(folder)}", path.read_bytes())
    return f"{store.at}/{folder.name}"


def samples(dataset: Dataset, **words: Any) -> list[Any]:
    batches = dataset.batches(rank=0, world_size=1, batch_size=700, seed=3, **words)
    return [each for batch in batches for each in arrays(batch)]


def arrays(batch: Batch) -> list[Any]:
    return [batch.sample_ids, batch.labels, *(each.values for each in batch.ids.values())]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted) > 6
    for here, there in zip(found, wanted, strict=True):
        assert here.dtype == there.dtype
        assert np.array_equal(here, there)  # not of NaN


def test_parquet_and_arrow_are_read_as_they_are_here(store: Store, tmp_path: Path):
    from pyarrow import feather, parquet

    write_dataset(open_dataset(GENERATED), tmp_path / "data")
    for at, path in enumerate(sorted((tmp_path / "data").glob("*.parquet"))[:1]):
        table: Any = parquet.read_table(path)
        feather.write_feather(table.slice(0, 900), str(tmp_path / "data" / f"more-{at}.arrow"), compression="lz4")
    address = put_folder(store, tmp_path / "data")
    here, there = open_dataset(tmp_path / "data"), open_dataset(address)
    assert load_spec(address) == ParquetSpec(paths=(address,))
    assert there.source.digest == here.source.digest  # so that a job goes on from either
    assert there.schema == here.schema
    assert_same(samples(there), samples(here))
    gap = open_dataset(ParquetSpec(paths=(address,), read_gap=2**16))
    assert_same(samples(gap), samples(here))
    assert check_spec(load_spec(address)).problem is None


def test_lines_and_joined_files_are_read_as_they_are_here(store: Store, tmp_path: Path):
    (tmp_path / "rows").mkdir()
    rows = [f"{at % 50},{at % 7},{at % 2}" for at in range(9_000)]
    (tmp_path / "rows" / "part-1.csv").write_text("\n".join(["user,item,click", *rows, ""]))
    (tmp_path / "rows" / "part-2.csv.gz").write_bytes(gzip.compress("\n".join(["user,item,click", *rows, ""]).encode()))
    (tmp_path / "items.csv").write_text("item,kind\n" + "".join(f"{at},{at + 3}\n" for at in range(7)))
    spec = TextSpec(
        paths=(str(tmp_path / "rows"),), labels=("click",),
        joins=(JoinedFile(path=str(tmp_path / "items.csv"), on="item"),),
        features=tuple(ColumnFeature(name=name, num_embeddings=50) for name in ("user", "item", "kind")),
    )  # fmt: skip
    joined = store.put("items.csv", (tmp_path / "items.csv").read_bytes())
    there = replace(spec, paths=(put_folder(store, tmp_path / "rows"),), joins=(JoinedFile(path=joined, on="item"),))
    assert_same(samples(open_dataset(there)), samples(open_dataset(spec)))
    json = "".join(f'{{"user": {at % 50}, "click": 1}}\n' for at in range(5_000)).encode()
    (tmp_path / "a.jsonl").write_bytes(json)
    one = replace(spec, paths=(str(tmp_path / "a.jsonl"),), joins=(), features=spec.features[:1])
    assert_same(
        samples(open_dataset(replace(one, paths=(store.put("a.jsonl", json),)))), samples(open_dataset(one)),
    )  # fmt: skip


def test_click_logs_are_read_as_they_are_here(store: Store, tmp_path: Path):
    lines = "".join("\t".join(["1", *["3"] * 13, *["0a1b2c3d"] * 26]) + "\n" for _ in range(5_000)).encode()
    (tmp_path / "day_0").write_bytes(lines)
    assert_same(samples(open_dataset(store.put("day_0", lines))), samples(open_dataset(tmp_path / "day_0")))


def test_an_epoch_goes_on_over_cut_lines_and_from_where_it_was_given_up(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    convert_dataset(open_dataset(GENERATED), tmp_path / "data", FileLayout(group_samples=500, file_samples=2_000))
    address, wanted = put_folder(store, tmp_path / "data"), samples(open_dataset(tmp_path / "data"))
    with cut_line(store.server, cut=one_in(7)) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        assert_same(samples(open_dataset(address)), wanted)
        assert line.cuts >= 3
        line.cut = lambda _: False
        dataset, found = open_dataset(address), list[Any]()
        batches = dataset.batches(rank=0, world_size=1, batch_size=700, seed=3, window=1000)
        wanted = samples(open_dataset(tmp_path / "data"), window=1000)
        position = batches.position
        with pytest.raises(RecSmithError, match=rf"cannot read .{address}/.*parquet.: the connection to"):  # noqa: PT012
            for batch in batches:
                found += arrays(batch)
                position, line.cut = batches.position, lambda _: True
                monkeypatch.setenv("RECSMITH_STORE_PATIENCE", "0.1")
        assert 0 < len(found) < len(wanted)
        line.cut = lambda _: False
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.server}")
    found += samples(open_dataset(address), window=1000, position=position)
    assert_same(found, wanted)


def test_what_is_not_data_is_refused_as_it_is_here(store: Store):
    with pytest.raises(UsageError, match="there is no such bucket or object"):
        open_dataset(f"{store.at}/nothing.parquet")
    with pytest.raises(CorruptFile, match=r"cannot be read as a Parquet file .* cut off or damaged"):
        open_dataset(store.put("cut.parquet", b"PAR1 and no more"))
    with pytest.raises(UsageError, match=r"is no data of a known format"):
        open_dataset(store.put("text.xyz", b"1"))
    spec = TextSpec(
        paths=(f"{store.at}/none",), labels=("click",), features=(ColumnFeature(name="user", num_embeddings=5),)
    )
    with pytest.raises(UsageError, match=r"there is no such bucket or object"):
        open_dataset(spec)
