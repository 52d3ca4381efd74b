"""Files that ship are built without pydantic: what they are is what a strict look makes of them, to the last digit."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest

from recsmith.clusters import Cluster
from recsmith.clusters.files import SCHEMA, catalogue, catalogue_raw, cluster_from_raw
from recsmith.costs import published
from recsmith.costs.neural import files as cards
from recsmith.files import built, check_schema, decode, spell_out
from recsmith.files.nouns import _plain  # pyright: ignore[reportPrivateUsage]
from recsmith.files.validators import adapter
from recsmith.workloads import files as workloads


def _assert_same(mine: Any, theirs: Any) -> None:
    """Both are equal to the last digit (1 is none of 1.0), and both ways to say what they are say the same."""
    assert mine == theirs
    assert json.dumps(spell_out(mine)) == json.dumps(spell_out(theirs))
    whole = adapter(type(mine)).dump_python(mine, mode="json", exclude_defaults=True)
    assert json.dumps(_plain(mine)) == json.dumps(whole)


def _both(monkeypatch: pytest.MonkeyPatch, module: Any, load: Callable[[], Any]) -> tuple[Any, Any]:
    """What a module makes of its files, and what it makes of them where they are decoded."""
    mine = load()
    monkeypatch.setattr(module, "built", lambda made, raw: decode(made, raw, "shipped"))
    return mine, load()


@pytest.mark.parametrize("device", catalogue())
def test_devices(device: str):
    raw = catalogue_raw(device)
    _assert_same(built(Cluster, check_schema(raw, SCHEMA, device)), cluster_from_raw(raw, device))


@pytest.mark.parametrize("name", workloads.builtins())
def test_workloads(name: str, monkeypatch: pytest.MonkeyPatch):
    _assert_same(*_both(monkeypatch, workloads, lambda: workloads.load_workload(name)))


def test_published_times_and_cards(monkeypatch: pytest.MonkeyPatch):
    mine, theirs = _both(monkeypatch, published, cast(Any, published.published).__wrapped__)
    assert mine.keys() == theirs.keys()
    for part, devices in mine.items():
        for device, times in devices.items():
            _assert_same(times, theirs[part][device])
    mine, theirs = _both(monkeypatch, cards, cast(Any, cards.shipped_cards).__wrapped__)
    assert mine.keys() == theirs.keys()
    for name, card in mine.items():
        _assert_same(card, theirs[name])
        _assert_same(cards.load_model(cards.find_model(name))[1], card)


def test_a_plan_of_what_ships_does_without_pydantic():
    words = ["plan", "criteo-kaggle", "--cluster", "h100:4", "--planner", "random"]
    code = f"import sys\nfrom recsmith.cli.app import app\napp({words}, standalone_mode=False)\n"
    code += "assert 'pydantic' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
