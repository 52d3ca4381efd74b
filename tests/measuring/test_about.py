"""about.json: written once, read back whole, and refused where it says something else or is damaged."""

import json
from pathlib import Path

import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.measuring.about import About, load_about, write_about

ABOUT = About(kind="compute", hardware="cpu", seed=3, scale="check", optimizers=("sgd",), data_types=("fp32",))


def test_what_is_written_is_read(tmp_path: Path):
    write_about(tmp_path, ABOUT)
    assert load_about(tmp_path) == ABOUT
    write_about(tmp_path, ABOUT)


def test_another_run_and_strange_files_are_refused(tmp_path: Path):
    other = About(kind="comm", hardware="local ranks", seed=0, ranks=2)
    write_about(tmp_path, ABOUT)
    with pytest.raises(
        UsageError, match="holds compute measurements of cpu, seed 3, scale check, sgd, fp32; to add comm"
    ):
        write_about(tmp_path, other)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes.txt' and no about.json"):
        write_about(tmp_path / "b", other)


@pytest.mark.parametrize("change", [{"schema": "recsmith/measurements/0"}, {"kind": None, "seed": None}])
def test_damage_is_named(tmp_path: Path, change: dict[str, str | None]):
    write_about(tmp_path, ABOUT)
    raw = json.loads((tmp_path / "about.json").read_text()) | change
    raw = {key: value for key, value in raw.items() if value is not None}
    (tmp_path / "about.json").write_text(json.dumps(raw))
    with pytest.raises(CorruptFile, match=r"about.json"):
        load_about(tmp_path)
