"""Criteo's click logs: every published form, and every way in which a line can be wrong."""

import gzip
import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.data import Batch, CriteoSpec, Dataset, GeneratedFeature, GeneratorSpec, open_dataset, write_dataset
from recsmith.data import line_files as files_module
from recsmith.data.batch import concatenated
from recsmith.data.criteo.lines import parse_lines
from recsmith.errors import CorruptFile, UsageError

ROWS = tuple(10 + 7 * column for column in range(26))
GENERATED = GeneratorSpec(
    num_samples=20_000,
    dense=13,
    features=tuple(GeneratedFeature(name=f"cat_{at}", num_embeddings=rows, zipf=1.0) for at, rows in enumerate(ROWS)),
    seed=3,
)
count = st.one_of(st.none(), st.integers(-3, 10**17))
category = st.one_of(st.none(), st.integers(0, 2**32 - 1))
line_of_data = st.tuples(st.integers(0, 1), st.lists(count, min_size=13, max_size=13),
                         st.lists(category, min_size=26, max_size=26))  # fmt: skip


def line(label: int = 1, counts: Sequence[int | None] | None = None, words: Sequence[int | None] | None = None) -> str:
    fields = ["" if each is None else str(each) for each in counts or [None] * 13]
    fields += ["" if each is None else f"{each:08x}" for each in words or [None] * 26]
    return "\t".join([str(label), *fields]) + "\n"


def everything(dataset: Dataset) -> Batch:
    """All samples in order of their numbers."""
    read = concatenated(list(dataset.batches(rank=0, world_size=1, batch_size=999, seed=0)))
    return read.take(np.argsort(read.sample_ids))


@settings(max_examples=60, deadline=None)
@given(st.lists(line_of_data, min_size=1, max_size=5))
def test_lines_mean_what_python_reads_in_them(lines: list[tuple[int, list[int | None], list[int | None]]]):
    parsed = parse_lines("".join(line(*each) for each in lines).encode())
    assert parsed.valid.all()
    assert parsed.labels.tolist() == [label for label, _, _ in lines]
    assert parsed.categories.tolist() == [[word or 0 for word in words] for _, _, words in lines]
    for found, (_, counts, _) in zip(parsed.dense, lines, strict=True):
        assert found == pytest.approx([math.log1p(max(each or 0, 0)) for each in counts], rel=1e-6)


GOOD = line(0, [5] * 13, [0xABCDEF01] * 26)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("garbage\n", "has 1 field, not 40"),
        ("\n", "has 1 field, not 40"),
        (GOOD.replace("\n", "\t1\n"), "has 41 fields"),
        (GOOD.replace("0\t5", "2\t5", 1), "has '2' in field 1, the label; it is 0 or 1"),
        (GOOD.replace("0\t5", "\t5", 1), "has '' in field 1, the label"),
        (GOOD.replace("5", "5x", 1), "has '5x' in field 2, count 1; it is a whole number"),
        (GOOD.replace("5", "-", 1), "has '-' in field 2, count 1"),
        (GOOD.replace("5", "1" * 19, 1), "has '1111111111111111111' in field 2, count 1; it is a whole number of 18"),
        (GOOD.replace("abcdef01", "abcdef0g", 1), "has 'abcdef0g' in field 15, category 1; it is 8 lower-case"),
        (GOOD.replace("abcdef01", "ABCDEF01", 1), "has 'ABCDEF01' in field 15"),
        (GOOD.replace("abcdef01", "abcdef0", 1), "has 'abcdef0' in field 15"),
        (GOOD.replace("abcdef01", "abcdef0\xff", 1), "in field 15"),
        (GOOD.replace("abcdef01\n", "NULL\n"), "has 'NULL' in field 40, category 26"),
        (GOOD.replace("\n", "\r\n"), r"has 'abcdef01\r' in field 40, category 26"),
        (GOOD.replace("\n", "\r\n"), "lines end in CRLF"),
        (
            "\xef\xbb\xbf" + GOOD,
            r"has '\ufeff0' in field 1, the label; it is 0 or 1; the file begins with a byte-order",
        ),
    ],
)
def test_a_wrong_line_is_corrupt_and_its_neighbours_are_not(wrong: str, message: str):
    parsed = parse_lines((GOOD + wrong + GOOD).encode("latin-1"))
    assert parsed.valid.tolist() == [True, False, True]
    assert parsed.first_corrupt is not None
    assert parsed.first_corrupt[0] == 1
    assert message in parsed.first_corrupt[1]
    assert parsed.categories[:, 0].tolist() == [0xABCDEF01, 0, 0xABCDEF01]
    assert parsed.dense[1].tolist() == [0.0] * 13


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_written_is_read_again(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.data.write.FILE_SAMPLES", 12_000)
    monkeypatch.setattr("recsmith.data.write.GROUP_SAMPLES", 1000)
    monkeypatch.setattr(files_module, "BLOCK_LINES", 512)
    monkeypatch.setattr("recsmith.data.criteo.source.BLOCK_LINES", 512)
    monkeypatch.setattr("recsmith.data.order.WINDOW", 4096)
    source = open_dataset(GENERATED)
    write_dataset(source, tmp_path / "days", "criteo", packed=packed)
    names = sorted(path.name for path in (tmp_path / "days").iterdir())
    assert names == (["day_0.gz", "day_1.gz"] if packed else ["day_0", "day_1"])
    read = open_dataset(CriteoSpec(paths=(str(tmp_path / "days"),), num_embeddings=ROWS))
    assert read.num_samples is None
    wanted, found = everything(source), everything(read)
    assert read.num_samples == 20_000
    assert np.array_equal(found.sample_ids, wanted.sample_ids)
    assert np.array_equal(found.labels, wanted.labels)
    assert np.array_equal(found.dense, wanted.dense)
    assert all(np.array_equal(found.ids[name].values, wanted.ids[name].values) for name in wanted.ids)
    seen = [each for rank in range(3) for batch in read.batches(rank=rank, world_size=3, batch_size=170, seed=4)
            for each in batch.sample_ids.tolist()]  # fmt: skip
    assert sorted(seen) == list(range(20_000))


def test_corrupt_lines_are_passed_over_up_to_the_limit(tmp_path: Path):
    path = tmp_path / "log.tsv"
    path.write_text((GOOD * 10 + "garbage\n") * 3 + GOOD.removesuffix("\n"))
    spec = CriteoSpec(paths=(str(path),), max_rows=1000, max_corrupt=3)
    batches = open_dataset(spec).batches(rank=0, world_size=1, batch_size=7, seed=0)
    read = [int(each) for batch in batches for each in batch.sample_ids]
    assert sorted(read) == [at for at in range(34) if at % 11 != 10]
    assert (batches.counts.samples, batches.counts.corrupt) == (31, 3)
    with pytest.raises(CorruptFile, match=r"3 samples are corrupt, more than max_corrupt: 2 .*log.tsv' line 11 has 1"):
        list(open_dataset(replace(spec, max_corrupt=2)).batches(rank=0, world_size=1, batch_size=99, seed=0))


def test_categories_become_rows_of_their_tables(tmp_path: Path):
    path = tmp_path / "log.tsv"
    path.write_text(GOOD)
    spec = CriteoSpec(paths=(str(path),))
    assert spec.rows[2] == 10_131_227
    batch = everything(open_dataset(spec))
    assert [int(batch.ids[f"cat_{at}"].values[0]) for at in range(26)] == [0xABCDEF01 % rows for rows in spec.rows]
    capped = everything(open_dataset(replace(spec, max_rows=1000)))
    assert max(int(bags.values[0]) for bags in capped.ids.values()) < 1000
    assert CriteoSpec(paths=("x",), cardinalities="terabyte").rows[0] == 45_833_188


def test_an_index_is_written_once_and_counted_again_for_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, index = tmp_path / "log.tsv", tmp_path / "lines.npz"
    path.write_text(GOOD * 20)
    spec = CriteoSpec(paths=(str(path),), index=str(index))
    assert len(everything(open_dataset(spec))) == 20
    assert [each.name for each in tmp_path.iterdir() if each.name != "log.tsv"] == ["lines.npz"]
    with monkeypatch.context() as patch:
        patch.setattr(files_module.LineFile, "index", lambda self: pytest.fail("counted again"))
        assert len(everything(open_dataset(spec))) == 20
    path.write_text(GOOD * 21)
    assert len(everything(open_dataset(spec))) == 21
    with np.load(index) as held:
        np.savez(index, digest=held["digest"], lines=held["lines"][:0])  # of no file, and yet of these
    with pytest.raises(CorruptFile, match="is not an index of lines"):
        everything(open_dataset(spec))
    index.write_bytes(b"PK nonsense")
    with pytest.raises(CorruptFile, match="is not an index of lines"):
        everything(open_dataset(spec))


def test_damaged_and_missing_files_are_refused(tmp_path: Path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((GOOD * 5000).encode())[:-200])
    with pytest.raises(CorruptFile, match=r"log.gz' cannot be read: it ends in the middle; fetch it again"):
        everything(open_dataset(path))
    path.write_bytes(b"no gzip at all")
    with pytest.raises(CorruptFile, match=r"cannot be read: Not a gzipped file"):
        everything(open_dataset(path))
    with pytest.raises(UsageError, match="there is no such file"):
        open_dataset(tmp_path / "missing.tsv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is a folder without files"):
        open_dataset(tmp_path / "empty")
    with pytest.raises(UsageError, match="num_embeddings has 2 numbers; it needs 26"):
        CriteoSpec(paths=("x",), num_embeddings=(5, 5))


def test_data_of_another_shape_is_not_written_as_lines(tmp_path: Path):
    with pytest.raises(UsageError, match="and this data has 1, 2 and 26; write Parquet, or change the spec"):
        write_dataset(open_dataset(replace(GENERATED, dense=2)), tmp_path / "days", "criteo")
    features = (replace(GENERATED.features[0], pooling_factor=2), *GENERATED.features[1:])
    with pytest.raises(UsageError, match="some bags here hold more or none"):
        write_dataset(open_dataset(replace(GENERATED, features=features)), tmp_path / "days", "criteo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_an_end_is_one_corrupt_sample_and_fills_no_memory(tmp_path: Path, packed: bool) -> None:
    """Of 256 MiB behind good lines; what is kept of it is its beginning."""
    path = tmp_path / ("log.gz" if packed else "log.tsv")
    endless = b"x" * 2**28
    path.write_bytes(gzip.compress(GOOD.encode() * 20 + endless, 1) if packed else GOOD.encode() * 20 + endless)
    del endless
    tracemalloc.start()
    try:
        dataset = open_dataset(CriteoSpec(paths=(str(path),), max_corrupt=1))
        assert len(everything(dataset)) == 20
        with pytest.raises(CorruptFile, match=r"has 1 field, not 40: 'x{60}'\.\.\."):
            everything(open_dataset(CriteoSpec(paths=(str(path),), max_corrupt=0)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**27
