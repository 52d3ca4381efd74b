"""Run files that extend another one."""

from pathlib import Path

import pytest

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.training import load_run

HEAD = "schema: recsmith/run/1\n"
BASE = (
    HEAD
    + """
output: runs/base
data: {train: {format: parquet, paths: [a]}, batch_size: 64}
model: {embedding_dim: 8, bottom: [8]}
checkpoint: {every: 5}
"""
)


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / "own.yaml"


def test_what_a_file_leaves_out_is_as_in_its_base(tmp_path: Path):
    (tmp_path / "below").mkdir()
    (tmp_path / "root.yaml").write_text(BASE)
    write(tmp_path / "below", middle=f"{HEAD}extends: ../root.yaml\nseed: 3\nmodel: {{bottom: [4]}}\n",
          own=f"{HEAD}extends: middle.yaml\noutput: runs/own\ndata: {{train: {{format: criteo, paths: [b]}}}}\n"
              "checkpoint: null\n")  # fmt: skip
    run = load_run(tmp_path / "below" / "own.yaml", ("seed=4",))
    assert (run.output, run.seed, run.checkpoint) == ("runs/own", 4, None)
    assert (run.model.embedding_dim, run.model.bottom) == (8, (4,))
    assert (run.data.train, run.data.batch_size) == ({"format": "criteo", "paths": ["b"]}, 64)


def test_a_run_and_its_base_may_be_named_by_addresses_of_this_machine(tmp_path: Path):
    (tmp_path / "root.yaml").write_text(BASE)
    write(
        tmp_path, middle=f"{HEAD}extends: file://{tmp_path}/root.yaml\nseed: 3\n", own=f"{HEAD}extends: middle.yaml\n"
    )
    assert load_run(f"file://{tmp_path}/own.yaml") == load_run(tmp_path / "own.yaml")
    assert load_run(f"file://{tmp_path}/own.yaml").seed == 3


@pytest.mark.parametrize(
    ("base", "own", "said"),
    [
        (BASE, f"{HEAD}extends: none.yaml\n", "extends: cannot read .*none.yaml"),
        (BASE, f"{HEAD}extends: [base.yaml]\n", "name one run file"),
        (f"{HEAD}extends: own.yaml\n", f"{HEAD}extends: base.yaml\n", "'own.yaml' extends 'base.yaml' extends 'own"),
        ("schema: recsmith/plan/1\n", f"{HEAD}extends: base.yaml\n", "base.yaml' has a schema 'recsmith/plan/1'"),
        ("- 1\n", f"{HEAD}extends: base.yaml\n", "base.yaml"),
        (BASE, f"{HEAD}extends: base.yaml\nsede: 3\n", r"sede is not a known field.* \(line 3\)$"),
        (BASE, f"{HEAD}extends: base.yaml\nseed: -1\n", r"seed is -1; .* \(line 3\)$"),
        (f"{BASE}ranks: 0\n", f"{HEAD}extends: base.yaml\n", "own.yaml': ranks is 0; it must be at least 1$"),
        (BASE, "extends: base.yaml\n", "names no schema"),
    ],
)
def test_what_cannot_be_extended_is_refused(base: str, own: str, said: str, tmp_path: Path):
    with pytest.raises(RecSmithError, match=said):
        load_run(write(tmp_path, base=base, own=own))


def test_a_base_is_read_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = write(tmp_path, base=BASE, own=f"{HEAD}extends: base.yaml\n")
    monkeypatch.chdir(tmp_path.parent)
    assert load_run(own).output == "runs/base"
    with pytest.raises(CorruptFile, match="output"):
        load_run(write(tmp_path, base=HEAD + "seed: 1\n"))
