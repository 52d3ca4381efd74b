"""`recsmith compress`."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.systems import needs_systems

from recsmith._components import known
from recsmith.embeddings import LogicalTable, load_maps, parameters, transforms_of
from recsmith.embeddings.compression import METHOD, method_of
from recsmith.errors import RecSmithError
from recsmith.training import load_run
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data
from recsmith.training.systems.stored.command import METHODS, compress_command
from recsmith.training.systems.stored.compressing import FROM_DATA
from recsmith.workloads import load_workload

pytestmark = needs_systems("stored")


def run(*words: object) -> Result:
    return CliRunner().invoke(compress_command, [*map(str, words)])


def test_a_smaller_workload_is_written_and_planned(tmp_path: Path):
    target = tmp_path / "small.yaml"
    found = run("dlrm-v2", "--target", "4x", "--cluster", "h100:8", "--planner", "size_greedy", "-o", target)
    assert found.exit_code == 0, found.stderr
    assert "97.36 GiB -> 24.34 GiB" in found.stdout
    assert "method: quotient_remainder" in found.stdout
    assert [line.split()[0] for line in found.stdout.splitlines()[-2:]] == ["as", "smaller"]
    assert len(load_workload(target).tables) == 26 + 18


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "0.5"], "such as 4x"),
        (["--target", "1e9", "--method", "hash"], "at most"),
        (["--target", "4", "-o", "kept.yaml"], "kept.yaml"),
    ],
)
def test_bad_words_are_one_sentence(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("kept.yaml").write_text("mine: 1\n")
    found = run("dlrm-v2", *words)
    assert isinstance(found.exception, RecSmithError)
    assert said in str(found.exception)
    assert Path("kept.yaml").read_text() == "mine: 1\n"


def test_methods_are_those_that_a_target_or_data_decide() -> None:
    decided = [name for name in known(METHOD) if method_of(name).dial is not None or name in FROM_DATA]
    assert sorted(METHODS) == sorted(decided)


@pytest.mark.parametrize("method", ["quotient_remainder", "mixed_dimension"])
def test_a_run_for_data_is_written_and_can_be_trained(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    features = "[{name: item, num_embeddings: 5000, zipf: 1.2}, {name: user, num_embeddings: 300}]"
    Path("data.yaml").write_text(
        f"schema: recsmith/dataset/1\nformat: generator\nnum_samples: 3000\nfeatures: {features}\n"
    )
    found = run("--data", "data.yaml", "--target", "6x", "--method", method, "--run", "run.yaml", "--operation", "add")
    assert found.exit_code == 0, found.stderr
    made = load_run("run.yaml")
    tables = tables_of(made.model, open_data(made.data.train, "data.train").schema)
    transforms = transforms_of(
        made.model.compression,
        [LogicalTable(each.name, each.num_embeddings, each.embedding_dim or 0) for each in tables],
    )
    assert set(transforms) == {"item", "user"}
    before = sum(16 * table.num_embeddings for table in tables)
    assert before / sum(parameters(each) for each in transforms.values()) >= 0.995 * 6
    if method == "mixed_dimension":
        assert "run.maps.safetensors" in found.stderr
        from recsmith.training.systems.stored.id_maps import id_counts

        counts = id_counts(open_data(made.data.train, "data.train"), tables)["item"]
        row = load_maps("run.maps.safetensors")["item"].numbers
        assert (np.diff(counts[np.argsort(row)]) <= 0).all()
    again = run("--data", "run.yaml", "--target", "6x", "--run", "run.yaml")
    assert "run.yaml" in str(again.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dlrm-v2", "--data", "x.yaml"], "--data and --run go together"),
        (["dlrm-v2", "--method", "learned_hash"], "give --data and --run"),
        ([], "name a workload, or a run"),
        (["dlrm-v2", "--tune", "folder"], "give it --data RUN alone"),
        (["--data", "x.yaml", "--tune", "folder", "--methods", "hush"], "names 'hush'"),
        (["--data", "x.yaml", "--tune", "folder", "--factors", "2,one"], "such as 2,4,8"),
    ],
)
def test_words_that_need_each_other(words: list[str], said: str):
    found = run(*words, "--target", "4x")
    assert said in str(found.exception)
