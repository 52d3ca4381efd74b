"""The lists of planners and cost models: all of them, each in a line of its own words, the same names in every help."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from recsmith.cli import options
from recsmith.clusters import catalogue
from recsmith.costs import COST_MODELS
from recsmith.planning.registry import PLANNERS
from recsmith.reports.catalogue import cost_models, planners
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES

Run = Callable[..., Any]


def test_every_planner_and_cost_model_is_listed_with_words_of_its_own():
    assert [each.name for each in planners()] == list(PLANNERS)
    assert [each.name for each in cost_models()] == [*COST_MODELS, "neural:cpu", "neural:simulated-h100"]
    words = [each.about for each in planners()]
    assert len(set(words)) == len(words)
    assert all(each.about and each.about.endswith(".") for each in (*planners(), *cost_models()))


def test_a_planner_of_ones_own_is_described_by_its_class(monkeypatch: pytest.MonkeyPatch):
    class Mine:
        """Puts everything on rank 0.

        More words.
        """

        name = "mine"

    monkeypatch.setitem(PLANNERS, "mine", Mine())  # type: ignore[arg-type]
    assert planners()[-1].about == "Puts everything on rank 0."


def test_the_table_and_json_say_the_same(run: Run):
    out, raw = run("planners").out, json.loads(run("planners", "--format", "json").out)
    for each in (*raw["planners"], *raw["cost_models"]):
        assert each["name"] in out
        assert each["about"] in out
    assert "auto (default)" in out
    assert "analytic (default)" in out


def test_help_lists_the_names_of_the_registries(run: Run):
    assert list(options.PLANNERS) == list(PLANNERS)
    assert options.TYPES == TYPE_NAMES
    assert options.KERNELS == KERNEL_NAMES
    assert list(options.DEVICES) == catalogue()
    out = "".join(run("plan", "--help").out.split())  # lines break at hyphens too
    for group in (options.PLANNERS, options.TYPES, options.KERNELS, options.DEVICES):
        assert options.listed(group).replace(" ", "") in out
