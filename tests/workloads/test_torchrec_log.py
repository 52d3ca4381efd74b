"""The report in a job's log: found whatever is written around it, and refused where it is cut or mixed."""

import re
import warnings
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.build import cluster
from support.planner_logs import BRACKETS, REPORTS, SHAPES, STDLIB, Shape, bare, folded, interleaved, prefixed

from recsmith.errors import CorruptFile
from recsmith.plans import Placement
from recsmith.plans.running import load_placements
from recsmith.workloads import Workload, load_workload, torchrec_log
from recsmith.workloads.torchrec_log import find_report, plain_lines, refuse_log

MACHINES = cluster(hosts=1, local=4)
TITLE = "--- Planner Statistics ---"
report = cache(bare)


def read(folder: Path, text: str) -> tuple[Workload, tuple[Placement, ...]]:
    """What both readers make of a log."""
    path = folder / "job.log"
    path.write_bytes(text.encode())
    work = load_workload(str(path))
    return work, load_placements(str(path), work, MACHINES)


# --- found --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_gives_the_workload_and_the_placements_of_its_bare_report(tmp_path: Path, shape: str, name: str):
    assert read(tmp_path, SHAPES[shape](bare(name))) == read(tmp_path, bare(name))


def test_the_bare_reports_hold_what_the_planner_was_asked_for(tmp_path: Path):
    _, mixed = read(tmp_path, bare("mixed"))
    assert [(each.table, each.sharding_type) for each in mixed] == [
        ("item", "table_wise"), ("query", "column_wise"), ("user", "row_wise"),
    ]  # fmt: skip
    work, cached = read(tmp_path, bare("cached"))
    assert [(each.table, each.sharding_type, each.compute_kernel) for each in cached] == [
        ("huge", "row_wise", "fused_uvm_caching"), ("tiny", "data_parallel", "dense"),
    ]  # fmt: skip
    assert cached[0].cache is not None
    assert (cached[0].cache.load_factor, work.batch_size) == (0.3, 512)


def test_a_bare_report_is_given_back_as_it_is():
    text = "\n" + bare("mixed") + "INFO done\n"
    assert find_report(text, "job.log") is text


@pytest.mark.parametrize("prefix", ["", STDLIB, "| job #12 | "])
def test_of_different_reports_the_last_is_read_with_a_warning(tmp_path: Path, prefix: str):
    first, last = (prefixed(prefix)(bare(name)) for name in REPORTS)
    line = first.count("\n") + 2 + 2
    with pytest.warns(
        UserWarning, match=f"holds 2 different planner reports; the last, which begins in line {line}, is"
    ):
        found = read(tmp_path, f"{first}replanned\n\n{last}{first[:0]}")
    assert found == read(tmp_path, bare("cached"))


def test_copies_count_once_among_different_reports(tmp_path: Path):
    text = "".join(prefixed("0: ")(bare(name)) for name in ("mixed", "cached", "mixed", "cached", "mixed"))
    with pytest.warns(UserWarning, match="holds 2 different planner reports; the last"):
        found = read(tmp_path, text)
    assert found == read(tmp_path, bare("mixed"))


def test_a_report_after_one_that_was_cut_off_is_read_with_a_warning(tmp_path: Path):
    cut = bare("mixed")[:4000]
    with pytest.warns(
        UserWarning, match=re.escape("holds 2 different planner reports (1 of them incomplete); the last")
    ):
        found = read(tmp_path, f"{cut}\nkilled; restart\n{bare('cached')}")
    assert found == read(tmp_path, bare("cached"))


def test_ranks_that_plan_differently_are_told_apart_line_by_line(tmp_path: Path):
    mixed, cached = (prefixed(f"[rank{rank}]: ")(bare(name)).splitlines() for rank, name in enumerate(REPORTS))
    lines = [line for pair in zip(mixed, cached, strict=False) for line in pair] + cached[len(mixed) :]
    with pytest.warns(UserWarning, match="holds 2 different planner reports"):
        found = read(tmp_path, "\n".join(lines))
    assert found == read(tmp_path, bare("cached"))


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [str, prefixed(STDLIB), BRACKETS], ids=["bare", "basic", "times"])
def test_a_report_that_is_cut_off_is_refused_with_its_last_line(tmp_path: Path, shape: Shape):
    lines = shape(bare("mixed")).splitlines()
    end = next(at for at, line in enumerate(lines) if "Batch Size" in line)
    words = (
        f"the planner report that begins in line 4 ends in line {end + 2}, before its 'Batch Size'; give the whole log"
    )
    with pytest.raises(CorruptFile, match=words):
        read(tmp_path, "\n".join(["one", "two", *lines[:end], "killed # 9"]))


def test_lines_of_a_folded_report_keep_their_numbers(tmp_path: Path):
    text = folded(80)(bare("mixed"))
    lines = text[: text.index("Batch Size")].splitlines()
    with pytest.raises(CorruptFile, match=rf"begins in line 6 ends in line {len(lines) - 4}, before"):
        read(tmp_path, "\n".join(lines[:-1]))


@pytest.mark.parametrize("length", [1000, 5000, 6000])
def test_every_cut_before_the_batch_size_is_refused(tmp_path: Path, length: int):
    for text in (bare("mixed")[:length], prefixed("0: ")(bare("mixed"))[:length]):
        with pytest.raises(CorruptFile, match=r"ends in line \d+, before its 'Batch Size'"):
            read(tmp_path, f"hello\n{text}")


def test_a_cut_within_the_batch_size_is_refused(tmp_path: Path):
    text = bare("mixed")
    with pytest.raises(CorruptFile, match="before its 'Batch Size'"):
        read(tmp_path, text[: text.index("Batch Size: 512") + len("Batch Size: 51")])


def test_ranks_without_a_label_line_by_line_are_refused(tmp_path: Path):
    for ranks, shape in ((2, str), (3, prefixed(STDLIB)), (2, BRACKETS)):
        with pytest.raises(CorruptFile, match=r"mixed with rows of another up to line \d+; give the log of one rank"):
            read(tmp_path, interleaved(*[shape] * ranks)(bare("mixed")))


@pytest.mark.parametrize("lag", [1, 5, 13, 17, 19, 20, 21, 22, 24, 60, 90])
def test_a_rank_that_logs_later_without_a_label_is_refused_or_read_right(tmp_path: Path, lag: int):
    lines = bare("mixed").splitlines()
    late = [None] * lag + lines
    early = lines + [None] * lag
    text = "".join(f"{line}\n" for pair in zip(early, late, strict=True) for line in pair if line is not None)
    try:
        found = read(tmp_path, text)
    except CorruptFile as error:
        assert re.search("mixed with rows of another|before its 'Batch Size'|shows .* of its", str(error))
    else:
        assert found == read(tmp_path, bare("mixed"))


def test_a_row_of_the_table_that_is_lost_is_missed(tmp_path: Path):
    lines = prefixed(STDLIB)(bare("mixed")).splitlines()
    lost = next(at for at, line in enumerate(lines) if "sparse.item" in line)
    with pytest.raises(CorruptFile, match="shows 2 of its 3 tables up to line"):
        read(tmp_path, "\n".join([*lines[:lost], f"Epoch 1 {lines[lost]}", *lines[lost + 1 :]]))


@pytest.mark.parametrize(
    "text", ["", "hello\n", f"{STDLIB}{'#' * 100}\n", "--- Planner Statistics ---\n", "a: 1\n" * 3]
)
def test_a_log_without_a_report_is_refused_in_one_sentence(tmp_path: Path, text: str):
    for path in (tmp_path / "job.log", tmp_path / "slurm-17.out"):
        path.write_text(text)
        words = (
            f"'{path}' has no `schema` and, as a log, no planner report (no '--- Planner Statistics ---'); TorchRec's"
        )
        with pytest.raises(CorruptFile, match=re.escape(words)):
            load_workload(str(path))
        with pytest.raises(CorruptFile, match=re.escape(words)):
            load_placements(str(path), load_workload("criteo-kaggle"), MACHINES)


def test_a_large_log_without_a_report_is_refused_without_a_look_at_its_lines(monkeypatch: pytest.MonkeyPatch):
    text = "[rank0]: 2026-01-01 10:00:00,123 INFO step # 17: loss 0.7 |####      |\n" * 700_000
    assert len(text) > 45 * 2**20
    looked = 0

    def look(*_: object) -> None:
        nonlocal looked
        looked += 1

    monkeypatch.setattr(torchrec_log._Scan, "take", look)
    assert find_report(text, "-") is None
    with pytest.raises(CorruptFile, match="no planner report"):
        refuse_log(text, "-", "schema")
    assert looked == 0


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_work_grows_with_the_rows_and_not_with_the_log(monkeypatch: pytest.MonkeyPatch, ranks: int):
    noise = "step # 17 # loss 0.7\n" * 50_000
    log = interleaved(*(prefixed(f"[rank{rank}]: ") for rank in range(ranks)))(bare("mixed"))
    masks = 0

    class Counted:
        def sub(self, _: str, prefix: str) -> str:
            nonlocal masks
            masks += 1
            return prefix

    monkeypatch.setattr(torchrec_log, "_TIME", Counted())
    find_report(noise + log + noise, "job.log")
    assert 0 < masks <= log.count("\n")


def test_texts_of_other_forms_are_no_logs(tmp_path: Path):
    table = "- {name: a, num_embeddings: 1, embedding_dim: 4, pooling_factor: 1}\n"
    body = f"schema: recsmith/workload/1\nbatch_size: 1\noptimizer: sgd\ntables:\n{table}"
    report = prefixed("# ")(bare("mixed"))
    for name, text in (
        ("w.yaml", body),
        ("w.txt", f"# mine\n{body}"),
        ("w", f"{body}{report}"),
        ("w.log", report + body),
    ):
        (tmp_path / name).write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [each.name for each in load_workload(str(tmp_path / name)).tables] == ["a"]


def test_a_log_in_which_recsmith_printed_json_is_a_log(tmp_path: Path):
    printed = '{\n"schema": "recsmith/result/1",\n"cost": 1\n}\n'
    assert read(tmp_path, f"+ srun plan\n{printed}{SHAPES['srun -l'](bare('mixed'))}") == read(tmp_path, bare("mixed"))


@pytest.mark.parametrize("text", ['{"step": 1}\n{"step": 2}\n', "[rank0]: hello\n", "# comment\n"])
def test_logs_that_begin_as_files_do_are_refused_as_logs(tmp_path: Path, text: str):
    (tmp_path / "job.log").write_text(text)
    with pytest.raises(CorruptFile, match="no planner report"):
        load_workload(str(tmp_path / "job.log"))


def test_files_without_a_schema_are_refused_as_files(tmp_path: Path):
    texts = {"w.yaml": "batch_size: 1\n", "w": "batch_size: 1\n", "w.json": f'{{"a": "{"x" * 2**20}"}}'}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(CorruptFile, match="names no schema"):
            load_workload(str(tmp_path / name))


def fold(text: str, width: int) -> str:
    lines = (line[at : at + width] for line in text.splitlines() for at in range(0, max(1, len(line)), width))
    return "\n".join(lines)


@given(
    name=st.sampled_from(REPORTS),
    prefix=st.sampled_from(["", "0: ", "INFO:stats:", "[rank0]: # "]),
    width=st.integers(40, 330),
    copies=st.integers(1, 2),
)
def test_folded_reports_are_joined_at_any_width(name: str, prefix: str, width: int, copies: int):
    whole = [f"{prefix}{line}" for line in report(name).splitlines()] * copies
    text = fold("\n".join(["epoch 0", *whole, "epoch 1"]), width)
    joined = plain_lines(text, TITLE)
    assert [line for line in joined.split("\n") if line] == ["epoch 0", *whole, "epoch 1"]
    assert joined.count("\n") == text.count("\n")  # lines keep their numbers


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[32mINFO\x1b[0m a\x1b[K\n", "INFO a\n"),
        ("\x1b[38;5;196ma\x1b(B\x1b[m\n", "a\n"),
        ('{"log":"\\u001b[1ma"}\n', '{"log":"a"}\n'),
        ("a\r\nb\r\r\nc\r", "a\nb\nc"),
        ("1%\r 2%\rdone\nnext\n", "done\nnext\n"),
        ("[32m a [0m\n", "[32m a [0m\n"),
    ],
)
def test_colours_and_carriage_returns_are_taken_off(text: str, plain: str):
    assert plain_lines(f"{TITLE}\n{text}", TITLE) == f"{TITLE}\n{plain}"


@pytest.mark.parametrize("text", ["", "\x1b[32mred\r\n", f"{'x' * 40}\n{'y' * 40}\nz\n"])
def test_a_text_without_the_word_and_without_frames_is_given_back(text: str):
    assert plain_lines(text, TITLE) is text


def test_frames_that_are_not_folded_join_nothing():
    for text in (report("mixed") + report("cached"), f"{'#' * 80}\n" * 3, f"{'#' * 80}\n" * 3 + "x\ny\n"):
        assert plain_lines(text, TITLE) == text


def test_a_bare_report_without_one_of_its_tables_is_refused(tmp_path: Path):
    lines = bare("mixed").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "sparse.query" in line)
    (tmp_path / "job.log").write_text("".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(CorruptFile, match="begins in line 1 shows 2 of its 3 tables"):
        load_workload(tmp_path / "job.log")
