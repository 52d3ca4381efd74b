"""What there is to choose from: planners and cost models, the same names in every help; and what is installed."""

from collections.abc import Callable
from typing import Any

import pytest

from recsmith import __version__
from recsmith._plugins import plugin_names
from recsmith.costs import COST_MODELS
from recsmith.planning.registry import PLANNERS
from recsmith.reports.catalogue import cost_models, installation_lines, planners

Run = Callable[..., Any]


def test_versions_stand_in_one_column_beside_the_wanted_ones():
    own, torch, torchrec = installation_lines({"torch": "2.13.0+cpu", "torchrec": None})
    assert own.startswith(f"recsmith    {__version__}, Python 3.")
    assert torch == "torch       2.13.0+cpu (wanted: 2.13)"
    assert torchrec == "torchrec    not installed (wanted: 1.8)"


def test_every_planner_and_cost_model_is_listed_with_words_of_its_own():
    assert [each.name for each in planners()] == [*PLANNERS, *plugin_names("recsmith.planners")]
    assert [each.name for each in cost_models()] == [
        *COST_MODELS,
        "neural:cpu",
        "neural:h100",
        "neural:h200",
        "neural:simulated-h100",
    ]
    words = [each.about for each in planners()[: len(PLANNERS)]]
    assert len(set(words)) == len(words)
    assert all(each.about and each.about.endswith(".") for each in (*planners(), *cost_models()))


def test_a_planner_of_ones_own_is_described_by_its_class(monkeypatch: pytest.MonkeyPatch):
    class Mine:
        """Puts everything on rank 0.

        More words.
        """

        name = "mine"

    monkeypatch.setitem(PLANNERS.places, "mine", Mine())  # type: ignore[arg-type]
    assert next(each for each in planners() if each.name == "mine").about == "Puts everything on rank 0."
