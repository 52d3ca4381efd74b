"""What arrays are: the runs of their members, what may not differ, and whether they pay."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.systems import needing

from recsmith.clusters import load_cluster
from recsmith.data import DataFeature, DataSchema
from recsmith.errors import CorruptFile, UsageError
from recsmith.prediction.job_step import JobStep
from recsmith.training import Run, RunData, RunModel, load_run, run_from_raw, run_to_raw
from recsmith.training.run.refusals import check_together
from recsmith.training.systems.arrays.gains import LEAST, AloneStep, predicted_gain
from recsmith.training.systems.arrays.members import check_array, members_of
from recsmith.training.systems.arrays.parts import array_parts
from recsmith.training.systems.arrays.settings import RunArray
from recsmith.units import format_time

RUN = Run(
    data=RunData(train="clicks.tsv"), output="out", seed=5,
    array=RunArray(members={"a": (), "b": ("seed=7", "optimizers.dense.learning_rate=0.1"), "c": ("model.top=[8]",)}),
)  # fmt: skip
SCHEMA = DataSchema(
    features=tuple(DataFeature(name=name, num_embeddings=100) for name in "abcdefgh"), dense=("x",), labels=("y",)
)


def with_members(**members: tuple[str, ...]) -> Run:
    return replace(RUN, array=RunArray(members=members))


def test_members_are_runs_of_their_own_in_the_order_of_the_array() -> None:
    found = members_of(RUN)
    assert [each.output for each in found.values()] == ["out/a", "out/b", "out/c"]
    assert [each.seed for each in found.values()] == [5, 7, 5]
    assert [each.order_seed for each in found.values()] == [5, 5, 5]
    assert found["b"].optimizers.dense.learning_rate == 0.1
    assert found["c"].model.top == (8,)
    assert all(each.array is None for each in found.values())
    assert run_from_raw(run_to_raw(RUN), "it") == RUN


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"a": (), "b": ("data.batch_size=7",)}, "'b' sets data.batch_size, and members share"),
        ({"a": (), "b": ("data.train=other.tsv",)}, "'b' sets data.train"),
        ({"a": (), "b": ("model.embedding_dim=32",)}, "'b' sets model.embedding_dim"),
        ({"a": (), "b": ("model.tables=[{name: t, num_embeddings: 3}]",)}, "'b' sets model.tables"),
        ({"a": (), "b": ("optimizers.warmup_steps=3",)}, "'b' sets optimizers.warmup_steps"),
        ({"a": (), "b": ("optimizers.sparse.name=sgd",)}, "'b' sets optimizers.sparse.name"),
        ({"a": (), "b": ("output=a",)}, "'b' sets output"),
        ({"a": ("seed=1",), "b": ("seed=1",)}, "'a' and 'b' have the same settings"),
        ({"a": (), "b": ("seed=5",)}, "'a' and 'b' have the same settings"),
        ({"a": (), "b": ("sead=5",)}, "array.members: 'b': sead is not a known field; did you mean 'seed'"),
        ({"a": (), "b": ("nonsense",)}, "array.members: 'b': 'nonsense' is not key=value"),
    ],
)
def test_what_members_may_not_be(members: dict[str, tuple[str, ...]], words: str) -> None:
    with pytest.raises((UsageError, CorruptFile), match=words):
        members_of(with_members(**members))


@pytest.mark.parametrize(
    ("members", "words"),
    [({"a": []}, "has 1; an array has two or more"), ({"a": [], "../b": []}, "use letters, digits"),
     ({"a": [], "A": ["seed=1"]}, "a and A are one folder on disks that do not tell A from a"),
     ({"a": [], "model": []}, "none of model"), ({"a": [], "b.c": []}, "use letters, digits")],
)  # fmt: skip
def test_names_and_numbers_of_members(members: Any, words: str) -> None:
    with pytest.raises((UsageError, CorruptFile), match=words):
        run_from_raw({**run_to_raw(RUN), "array": {"members": members}}, "it")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("comms.forward=int8", "comms ask for int8"),
        needing("tiers", "rows={name: tiered, folder: x}", "rows: tiered changes where the rows of tables are"),
        ("model.precision=bf16", "model.precision: bf16 changes"),
        needing("dedup", "data.deduplicate=auto", "data.deduplicate changes"),
        needing("periods", "data.periods={samples: 10}", "data.periods changes"),
        needing("second_order", "pipeline=dance", "pipeline: dance changes"),
        ("checkpoint.background=true", "checkpoint.background changes"),
        ("checkpoint.publish=s3://models/a", "checkpoint.publish changes where checkpoints are"),
        needing("shampoo", "optimizers.dense.name=shampoo", "shampoo changes"),
        needing("watch", "watch=auto", "watch looks at the steps of one model"),
        ("capture=trace", "capture looks at the steps of one model"),
    ],
)
def test_what_does_not_go_together(setting: str, words: str) -> None:
    run = load_run(RUN, (setting,))
    with pytest.raises(UsageError, match=words):
        checked(run)


def checked(run: Run) -> None:
    check_array(run)
    check_together(array_parts(run))


ALONE = AloneStep(
    JobStep(trainer_s=3e-3, reading_s=2e-3, embeddings_s=1e-3, layers_s=2e-3, gradients_s=3e-4, optimizer_s=1e-4),
    load_cluster("cpu:1"),
)


@given(st.integers(2, 6), st.sampled_from(["dlrm", "dlrm_dcn", "deepfm"]), st.integers(1, 4096))
def test_a_gain_is_between_nothing_and_the_number_of_members(count: int, name: str, batch: int) -> None:
    run = replace(
        RUN, model=RunModel(name=name), data=RunData(train="x", batch_size=batch),
        array=RunArray(members={str(each): (f"seed={each}",) for each in range(count)}),
    )  # fmt: skip
    gain = predicted_gain(run, SCHEMA, ALONE)
    assert gain.value is not None
    assert 0 < gain.value <= count
    assert gain.together == (gain.value >= LEAST)
    assert not predicted_gain(run, SCHEMA, None).together


def test_large_layers_are_trained_in_turn() -> None:
    large = ALONE._replace(step=replace(ALONE.step, layers_s=1.0))
    gain = predicted_gain(RUN, SCHEMA, large)
    assert not gain.together
    assert gain.line().startswith(
        "array: 3 members are trained in turn (array.together: auto, which wants 1.1 times): "
    )
    assert predicted_gain(asked("always"), SCHEMA, large).together
    assert not predicted_gain(asked("never"), SCHEMA, ALONE).together


def asked(together: Any) -> Run:
    assert RUN.array is not None
    return replace(RUN, array=replace(RUN.array, together=together))


def test_a_dry_run_tells_the_step_of_a_member_as_its_own_dry_run_does(tmp_path: Path) -> None:
    pytest.importorskip("torchrec")
    from recsmith.training.launch.dry_run import described

    data = {"format": "generator", "num_samples": 640, "features": [{"name": "a", "num_embeddings": 100}]}
    two = with_members(a=(), b=("seed=7",))
    array = replace(two, data=RunData(train=data, batch_size=32), output=str(tmp_path), ranks=1)
    member = described(next(iter(members_of(array).values())))
    assert member.step is not None
    said = next(each.said for each in described(array).systems if each.key == "array")
    assert f"a step of one alone is predicted to take {format_time(member.step.step_s)} and one of all" in said
