"""What a line of a journal must be: every row of real runs is, and each damage has its words."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.exchanged import exchange

from recsmith.errors import CorruptFile
from recsmith.hardware import load_hardware
from recsmith.measuring.about import About
from recsmith.measuring.compute.cases import Cases
from recsmith.measuring.compute.run import measure_compute
from recsmith.measuring.folder import open_folder
from recsmith.measuring.journal import NAME
from recsmith.measuring.limit import Limit
from recsmith.measuring.row_checks import row_trouble
from recsmith.measuring.rows import journal_rows, read_columns

COMM = About(kind="comm", hardware="local ranks", seed=0, ranks=2)


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a few simulated visits."""
    path = tmp_path_factory.mktemp("made") / "m"
    hardware = load_hardware("simulated:h100", "check")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recsmith.measuring.folder.has_pyarrow", lambda: False)
        measure_compute(hardware, Cases(seed=0, scale=hardware.scale), path, Limit(samples=2))
    return path


@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"position": None}, "it has no position"),
        ({"position": "²"}, "position must be a whole number from 0 to 2^53"),
        ({"position": True}, "position must be a whole number"),
        ({"position": -1}, "position must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"batch_size": 2**53}, "batch_size must be a whole number"),
        ({"elapsed_s": -1.0}, "elapsed_s must be a finite number from 0"),
        ({"elapsed_s": 1e308}, "elapsed_s must be a finite number from 0"),
        ({"median_s": [1.0, 0.0]}, "median_s must be at least 1e-12 s"),
        ({"median_s": [1.0, 1e-300]}, "median_s must be at least 1e-12 s"),
        ({"median_s": [1.0]}, "median_s has 1 values, which is not one for each of its ranks"),
        ({"median_s": 1.0}, "median_s is no list"),
        ({"sent_bytes": [1, None]}, "sent_bytes must be a whole number"),
        ({"device": {"name": "x"}}, "device must be text of at most"),
        ({"device": "x" * 10**6}, "device must be text of at most"),
        ({"oversubscribed": 1}, "oversubscribed must be true or false"),
        ({"direction": "sideways"}, "direction must be one of forward, backward"),
        ({"ranks": 3, "sent_bytes": [1] * 3}, "which is not one for each of its ranks"),
        ({"medain_s": 1}, "'medain_s' is not a known column; did you mean 'median_s'?"),
    ],
)
def test_each_damage_of_a_row_has_its_words(change: dict[str, Any], trouble: str):
    assert row_trouble(exchange(0), COMM) == ""
    assert trouble in row_trouble(exchange(0) | change, COMM)


def test_rows_of_other_ranks_than_the_folders_are_refused():
    assert row_trouble(exchange(0, ranks=3), COMM) == "ranks is 3, in a folder of 2 ranks"


@pytest.mark.parametrize("positions", [(0, 0), (0, 1, 0), (5, 3)])
def test_a_repeated_position_is_refused_and_the_journal_is_kept(tmp_path: Path, positions: tuple[int, ...]):
    lines = "".join(json.dumps(exchange(position)) + "\n" for position in positions)
    with open_folder(tmp_path, COMM) as folder:
        (tmp_path / NAME).write_text(lines)
        with pytest.raises(CorruptFile, match=rf"line {len(positions)}: position . comes after position"):
            folder.fold()
    assert (tmp_path / NAME).read_text() == lines


def test_what_a_failed_case_did_not_give_may_be_empty(compute: Path):
    about, (row, *_) = About(kind="compute", hardware="x", seed=0), journal_rows(compute)
    failed = {"status": "failed", "forward_s": None, "backward_s": None, "unique_rows": [], "reuse_bins": []}
    assert row_trouble(row | failed, about) == ""
    assert "unique_rows has 0 values" in row_trouble(row | {"unique_rows": []}, about)
    assert "reuse_bins has 1 values" in row_trouble(row | failed | {"reuse_bins": [1]}, about)
    assert "optimizer must be one of sgd" in row_trouble(row | {"optimizer": "lion"}, about)


def test_a_row_without_a_value_is_named_before_it_is_folded_or_read(tmp_path: Path):
    row = {name: value for name, value in exchange(7).items() if name != "median_s"}
    with open_folder(tmp_path, COMM) as folder:
        folder.add(row)
        with pytest.raises(CorruptFile, match=r"the row of position 7 has no median_s; remove its line"):
            folder.fold()
    assert read_columns(tmp_path, ["number"]) == {"number": [7]}
    with pytest.raises(CorruptFile, match="has no median_s"):
        read_columns(tmp_path, ["number", "median_s"])


@pytest.mark.parametrize("line", [{"begin": 1.5}, {"begin": -2}, {"begin": 1, "position": 1}, {"begin": "1"}])
def test_a_note_is_a_position_alone(tmp_path: Path, line: dict[str, Any]):
    with open_folder(tmp_path, COMM):
        (tmp_path / NAME).write_text(json.dumps(line) + "\n")
    with pytest.raises(CorruptFile, match="in line 1: 'begin' is no position, or does not stand alone"):
        journal_rows(tmp_path)
