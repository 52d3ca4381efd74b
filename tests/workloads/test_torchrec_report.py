"""The text that TorchRec's planner logs: read as it is, and refused where it is broken."""

import csv
import re
import warnings
from pathlib import Path

import pytest
from support.planner_logs import REPORTS, bare

from recsmith.errors import CorruptFile
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.torchrec_report import ReportRows

COLUMNS = ["FQN", "Sharding", "Sum Pooling Factor", "Sum Num Poolings", "Num Indices", "Output", "Weighted",
           "Features", "Emb Dim (CW Dim)", "Hash Size", "Ranks", "Batch Sizes"]  # fmt: skip
FIRST = ["m.ebc.user", "CW", "3.0", "1.0", "3.0", "pooled", "weighted", "1", "128 (64)", "1000", "0,1", "512"]
SECOND = ["m.ec.item", "RW", "6.0", "4.0", "10.0", "sequence", "unweighted", "2", "32", "77", "0-7", "256 * 2"]


def report(*rows: list[str], columns: list[str] = COLUMNS, batch: str = "512") -> str:
    """A planner report as TorchRec lays it out: cells right-aligned, three blanks apart."""
    cells = [columns, ["---"] * len(columns), *rows]
    table = ["".join(f"{cell:>{max(map(len, row)) + 3}}" for cell in row) for row in cells]
    lines = [
        "--- Planner Statistics ---",
        "Rank     HBM (GB)",
        "",
        "Parameter Info:",
        *table,
        "",
        f"Batch Size: {batch}",
    ]
    width = max(map(len, lines))
    return "#" * (width + 4) + "\n" + "".join(f"# {line:<{width}} #\n" for line in lines)


def read(tmp_path: Path, text: str) -> Workload:
    (tmp_path / "report.txt").write_text(text)
    return load_workload(str(tmp_path / "report.txt"))


def test_a_report_keeps_features_poolings_and_batch_sizes(tmp_path: Path):
    work = read(tmp_path, report(FIRST, SECOND))
    user, item = work.tables
    assert (work.batch_size, work.optimizer, work.source) == (512, "sgd", "TorchRec planner report")
    assert (user.name, user.collection, user.embedding_dim, user.num_embeddings) == ("user", "m.ebc", 128, 1000)
    assert (user.pooled, user.weighted, user.features[0].name, user.features[0].pooling_factor) == (
        True, True, "user", 3.0,
    )  # fmt: skip
    assert (item.name, item.collection, item.pooled, item.weighted) == ("item", "m.ec", False, False)
    assert [feature.name for feature in item.features] == ["item.0", "item.1"]
    assert [(feature.pooling_factor, feature.num_poolings) for feature in item.features] == [(2.5, 2.0)] * 2
    assert [feature.batch_size for feature in (*user.features, *item.features)] == [None, 256, 256]


@pytest.mark.parametrize(
    ("cell", "sizes"),
    [("n/a", [None] * 3), ("512*3", [None] * 3), ("256 * 2, 512", [256, 256, None]), ("1, 2, 3", [1, 2, 3])],
)
def test_every_feature_has_its_own_batch_size(tmp_path: Path, cell: str, sizes: list[int | None]):
    work = read(tmp_path, report([*FIRST[:7], "3", *FIRST[8:11], cell]))
    assert [feature.batch_size for feature in work.tables[0].features] == sizes


def test_a_report_may_lack_batch_sizes_as_it_does_without_constraints(tmp_path: Path):
    work = read(tmp_path, report(FIRST[:-1], columns=COLUMNS[:-1]))
    assert work.tables[0].features[0].batch_size is None


def test_an_unread_table_keeps_its_pooling_factor(tmp_path: Path):
    work = read(tmp_path, report([*FIRST[:3], "0.0", "0.0", *FIRST[5:]]))
    assert (work.tables[0].features[0].pooling_factor, work.tables[0].features[0].num_poolings) == (3.0, 0.0)


def test_tables_of_one_name_are_numbered_with_a_warning(tmp_path: Path):
    with pytest.warns(UserWarning, match="tables of the same name were numbered: user$"):
        work = read(tmp_path, report(FIRST, ["other.ebc.user", *FIRST[1:]], FIRST))
    assert [table.name for table in work.tables] == ["user", "user#2", "user#3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (report(), "without a batch size or without tables"),
        (report(FIRST, batch="many"), "without a batch size or without tables"),
        (report(FIRST).replace("Parameter Info", "Parameters    "), "keep its 'Parameter Info'"),
        (report(FIRST, batch="0"), "batch_size is 0"),
        (report(FIRST[:-2], columns=[*COLUMNS[:9], "Ranks"]), "without the column 'Hash Size'"),
        (report(FIRST[:-1]), "the row of 'm.ebc.user' has 11 cells, the header has 12"),
        (report([*FIRST[:4], "many", *FIRST[5:]]), "the row of 'm.ebc.user' has Num Indices 'many', which"),
        (report([*FIRST[:4], "nan", *FIRST[5:]]), "pooling_factor of feature 'user' is nan"),
        (report([*FIRST[:9], "0", *FIRST[10:]]), "num_embeddings of table 'user' is 0"),
        (report([*FIRST[:7], "0", *FIRST[8:11], "n/a"]), "table 'user' has no features"),
        (report([*FIRST[:11], "512*4"]), "the row of 'm.ebc.user' has 4 Batch Sizes for 1 Features"),
        (report([*FIRST[:11], "x"]), "has Batch Sizes 'x', which cannot be read as a number"),
    ],
)
def test_a_broken_report_is_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(CorruptFile, match=re.escape(words)) as caught:
        read(tmp_path, text)
    assert "report.txt" in str(caught.value)


def test_a_yaml_file_that_starts_with_a_comment_is_no_report(tmp_path: Path):
    text = "schema: recsmith/workload/1\nbatch_size: 1\noptimizer: sgd\ntables:\n"
    text += "- {name: a, num_embeddings: 1, embedding_dim: 4, pooling_factor: 1}\n"
    assert read(tmp_path, "# mine\n" + text).source == ""
    assert read(tmp_path, text + "name: '--- Planner Statistics ---'\n").source == ""


# --- the real one -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def production(data: Path) -> Workload:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work = load_workload(str(data / "torchrec_prod1935" / "sharding_stats_example.txt"))
    assert ["were numbered: table_1750" in str(warning.message) for warning in caught] == [True]
    return work


def test_the_production_report_holds_all_its_tables(production: Workload):
    assert production.batch_size == 2560
    assert len(production.tables) == len({table.name for table in production.tables}) == 1935
    assert sum(not table.pooled for table in production.tables) == 2
    assert {table.collection for table in production.tables if not table.pooled} == {"model.sparse.sequence_ec"}


def test_the_production_report_numbers_its_twin(production: Workload):
    by_name = {table.name: table for table in production.tables}
    assert (by_name["table_1750"].num_embeddings, by_name["table_1750#2"].num_embeddings) == (15_000_000, 94)


def test_the_production_report_keeps_every_feature_pooling_and_id(production: Workload, data: Path):
    with (data / "torchrec_prod1935" / "tables.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_order = zip(production.tables, rows, strict=True)
    for table, row in by_order:
        ids = sum(feature.pooling_factor * feature.num_poolings for feature in table.features)
        poolings = sum(feature.num_poolings for feature in table.features)
        assert len(table.features) == int(row["num_features"])
        assert table.num_embeddings == int(row["rows"])
        assert table.embedding_dim == int(row["dim"])
        assert poolings == pytest.approx(float(row["sum_num_poolings"]), rel=1e-12)
        assert ids == pytest.approx(float(row["num_indices"]), rel=1e-6)


def rows(name: str, **changes: str) -> list[str]:
    """The rows of a stored report from its title on, some words replaced."""
    text = bare(name)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text.splitlines()[1:]


def trouble(lines: list[str]) -> str:
    return ReportRows(2, len(lines) + 1, lines).trouble()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_whole_from_its_batch_size_on(name: str):
    lines = rows(name)
    batch = next(at for at, line in enumerate(lines) if "Batch Size" in line)
    for end in range(len(lines) + 1):
        cut = f"ends in line {end + 1}, before its 'Batch Size'; give the whole log"
        assert trouble(lines[:end]) == ("" if end > batch else cut)


def test_a_report_without_the_table_is_whole():
    lines = rows("mixed")
    first, last = (
        next(at for at, line in enumerate(lines) if word in line) for word in ("Parameter Info", "Batch Size")
    )
    assert trouble(lines[: first - 1] + lines[last - 1 :]) == ""


def test_rows_of_another_report_are_noticed():
    lines = rows("mixed")
    first, last = (
        next(at for at, line in enumerate(lines) if word in line) for word in ("Parameter Info", "Batch Size")
    )
    for at in (0, first, last, first + 4):
        assert "is mixed with rows of another" in trouble([*lines[:at], lines[last], *lines[at:]])
    assert "is mixed with rows of another" in trouble([*lines[: first + 4], lines[last - 1], *lines[first + 4 :]])


@pytest.mark.parametrize("name", REPORTS)
def test_each_row_of_the_table_is_missed(name: str):
    lines = rows(name)
    tables = [at for at, line in enumerate(lines) if line.lstrip("# ").startswith("sparse.")]
    for at in tables:
        assert f"shows {len(tables) - 1} of its {len(tables)} tables" in trouble(lines[:at] + lines[at + 1 :])


def test_copies_are_equal_whatever_the_planner_took():
    first, slow, other = (ReportRows(1, 1, each) for each in (
        rows("mixed"), rows("mixed", **{"ran for 0.0": "ran for 9.9"}), rows("mixed", **{"5000": "5001"}),
    ))  # fmt: skip
    assert first.read_part() == slow.read_part()
    assert first.read_part() != other.read_part()


def kernels(*names: str) -> str:
    """A report with a table of each kernel."""
    rows = [[f"m.ebc.t{i}", "RW", *FIRST[2:], kernel] for i, kernel in enumerate(names)]
    return report(*rows, columns=[*COLUMNS, "Compute Kernel"])


@pytest.mark.parametrize("kernel", ["dram_ssd_virtual_table", "ssd_virtual_table", "dram_virtual_table"])
def test_tables_that_keep_rows_by_key_are_left_out_with_a_note(tmp_path: Path, kernel: str):
    with pytest.warns(UserWarning, match=r"2 tables of virtual kernels \(t1, t2\) left out"):
        work = read(tmp_path, kernels("fused", kernel, kernel, "dense"))
    assert [table.name for table in work.tables] == ["t0", "t3"]
    with pytest.raises(CorruptFile, match="reports nothing but 1 table of virtual kernels"):
        read(tmp_path, kernels(kernel))
