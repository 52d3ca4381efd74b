"""What all trainings share: checks of the output, what is held out, scores, and least squares."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.errors import MissingExtra, UsageError
from recsmith.learning.preparation import (
    bands,
    check_output,
    errors,
    held_out,
    import_training,
    noise_floor_of,
    non_negative_fit,
    repeat_differences,
    split,
)


def test_outputs_are_safetensors_in_folders_that_exist(tmp_path: Path):
    check_output(str(tmp_path / "m.safetensors"))
    for output, rule in (
        ("m.bin", "give a name that ends with .safetensors"),
        ("none/m.safetensors", "does not exist"),
    ):
        with pytest.raises(UsageError, match=rule):
            check_output(str(tmp_path / output))


def test_only_a_missing_pytorch_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        import_training("no_such_module")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match="training needs PyTorch"):
        import_training("torch")


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(0, 9))
def test_every_measurement_is_in_one_part_and_a_case_too(case: list[int], seed: int):
    parts = np.array(split(np.array(case), seed))
    assert (parts.sum(axis=0) == 1).all()
    where = parts.argmax(axis=0)
    assert len({(number, part) for number, part in zip(case, where.tolist(), strict=True)}) == len(set(case))


def test_parts_are_eight_one_and_one_tenth_and_follow_the_seed():
    cases = np.arange(1000)
    assert [int(part.sum()) for part in split(cases, 0)] == [800, 100, 100]
    assert not np.array_equal(split(cases, 0)[0], split(cases, 1)[0])


def test_cases_that_judge_stay_out_of_training_when_there_are_more_of_them():
    few, many = np.arange(0, 4000, 2), np.arange(4000)
    judging, training = few[split(few, 3)[2]], many[split(many, 3)[0]]
    assert len(judging) == 200
    assert not set(judging) & set(training)


def test_repeats_are_found_wherever_they_are():
    seconds = np.array([[1.0, 4.0], [9.0, 9.0], [1.5, 2.0]])
    assert repeat_differences(np.array([7, 3, 7]), seconds).tolist() == [[0.5, 0.5]]
    floor = noise_floor_of(np.array([0.1, 0.2, 0.6]))
    assert (floor.pairs, floor.median, floor.mean) == (3, 0.2, pytest.approx(0.3))
    assert noise_floor_of(np.empty(0)).median is None


def test_groups_of_nearly_equal_work_share_a_band() -> None:
    assert len(set(bands(np.array([1.0, 1.02])).tolist())) == 1
    assert len(set(bands(np.array([1.0, 1.1, 1.3])).tolist())) == 3


def test_scores_by_hand() -> None:
    predicted, measured = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 1.0], [4.0, 4.0]])
    assert errors(predicted, measured).tolist() == [[0, 1], [0.25, 0.25]]
    found = held_out(predicted, measured)
    assert (found.samples, found.median, found.mean, found.tau) == (2, 0.25, 0.25, 1)
    assert (found.forward_median, found.backward_median) == (0.125, 0.625)


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_a_non_negative_fit_finds_weights_that_are_there(seed: int) -> None:
    draw = np.random.default_rng(seed)
    figures, weights = draw.uniform(0, 1, (30, 4)), np.maximum(draw.normal(size=4), 0)
    assert non_negative_fit(figures, figures @ weights) == pytest.approx(weights, abs=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_no_weight_of_a_fit_can_be_moved_for_the_better(seed: int) -> None:
    """Where a weight is 0 the error rises with it; elsewhere it does not change."""
    draw = np.random.default_rng(seed)
    figures, target = draw.uniform(0, 1, (20, 3)), draw.normal(size=20)
    weights = non_negative_fit(figures, target)
    slope = figures.T @ (figures @ weights - target)
    assert (weights >= 0).all()
    assert (slope >= -1e-5).all()
    assert slope[weights > 0] == pytest.approx(0, abs=1e-5)
