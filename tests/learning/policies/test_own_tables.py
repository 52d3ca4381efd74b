"""Policies that learn of a user's own tables: which those are, and that a run does not go on with others."""

from pathlib import Path
from typing import Any

import pytest

import recsmith
from recsmith.errors import CorruptFile, UsageError
from recsmith.learning.policies import SplitSettings
from recsmith.learning.policies.learn import of_tables
from recsmith.learning.policies.own_tables import digest_of, own_tables
from recsmith.learning.policies.tasks import TESTING, TRAINING


def some_tables(count: int, first: int = 0) -> tuple[recsmith.Table, ...]:
    return tuple(
        recsmith.Table(
            name=f"t{number}", num_embeddings=1000 + number, embedding_dim=128, pooling="mean", data_type="fp16",
            features=(recsmith.Feature(name="a", pooling_factor=3.0),
                      recsmith.Feature(name="b", pooling_factor=5.0, num_poolings=3.0)),
        )
        for number in range(first, first + count)
    )  # fmt: skip


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A workload of six tables, a plan of some of the same and of others, and the folder of a run with a plan."""
    folder = tmp_path / "jobs"
    (folder / "run").mkdir(parents=True)
    for name, tables in (("plan.json", some_tables(6, first=4)), ("run/plan.json", some_tables(4, first=10))):
        workload = recsmith.Workload(batch_size=64, optimizer="sgd", tables=tables)
        recsmith.save_plan(recsmith.plan(workload, "cpu:2", planner="size_greedy").plan, folder / name)
    recsmith.save_workload(
        recsmith.Workload(batch_size=64, optimizer="adagrad", tables=some_tables(6)), folder / "w.yaml"
    )
    (folder / "notes.txt").write_text("no tables")
    return folder


def test_tables_of_workloads_plans_and_runs_count_once_each(jobs: Path):
    found = own_tables(str(jobs))
    assert sorted(table.num_embeddings for table in found) == [1000 + number for number in range(14)]
    (jobs / "MORE.CSV").write_text("name,num_embeddings,embedding_dim,pooling_factor\na,2000,8,1\n")
    own_tables.cache_clear()
    assert len(own_tables(str(jobs))) == 15
    for table in found:
        [feature] = table.features
        assert (table.embedding_dim, table.pooling, table.data_type) == (128, "sum", "fp32")
        assert (feature.num_poolings, feature.num_poolings * feature.pooling_factor) == (4.0, 18.0), "3 + 3 * 5 ids"


def test_tasks_are_of_the_users_tables_and_those_that_judge_do_not_train(jobs: Path):
    settings = SplitSettings(sizes=("4x20",), tasks=3, **of_tables(str(jobs)))
    rows = {
        half: {table.num_embeddings for task in settings.draw(3, half=half) for table in task.workload.tables}
        for half in (TRAINING, TESTING)
    }
    assert rows[TRAINING] | rows[TESTING] <= {1000 + number for number in range(14)}
    assert rows[TRAINING]
    assert rows[TESTING]
    assert not rows[TRAINING] & rows[TESTING]


def test_the_digest_is_that_of_tables_and_not_of_their_names(jobs: Path):
    digest = of_tables(str(jobs))["digest"]
    assert digest == digest_of(tuple(reversed(own_tables(str(jobs)))))
    assert digest != digest_of(own_tables(str(jobs))[1:])
    assert of_tables(None) == {"own": None, "digest": None}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no workload or plan"),
        ({"w.yaml": 9}, "has 9 different tables, and a policy needs 10 or more"),
        ({"w.yaml": 12, "run.yaml": "schema: recsmith/run/1"}, "run.yaml"),
    ],
)
def test_folders_without_enough_tables_are_refused(files: dict[str, Any], words: str, tmp_path: Path):
    for name, content in files.items():
        if isinstance(content, str):
            (tmp_path / name).write_text(content)
        else:
            recsmith.save_workload(
                recsmith.Workload(batch_size=64, optimizer="sgd", tables=some_tables(content)), tmp_path / name
            )
    with pytest.raises((UsageError, CorruptFile), match=words):
        own_tables(str(tmp_path))


def test_a_policy_learns_of_them_and_another_folder_does_not_go_on(jobs: Path, tmp_path: Path):
    pytest.importorskip("torch")
    from recsmith.learning.policies.learn import learn_splits

    settings = SplitSettings(sizes=("2x20",), tasks=2, cost_model="analytic", **of_tables(str(jobs)))
    fields = {"iterations": 1, "imitation": 5, "updates": 2, "searched": 2, "width": 4, "rounds": 1}
    output = str(tmp_path / "mine.safetensors")
    card = learn_splits(settings, output, fields)
    assert (card.own, card.digest) == (str(jobs), settings.digest)
    with pytest.raises(UsageError, match=r"holds a run with own .* instead of None"):
        learn_splits(SplitSettings(sizes=("2x20",), tasks=2, cost_model="analytic"), output, fields)
