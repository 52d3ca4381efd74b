"""Each system of RecSmith, and that of examples/, keeps the contract that ships for those of others."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from recsmith._compiled import compiled
from recsmith.testing import SystemContract, TrainedSystemContract
from recsmith.training import Run, run_from_raw, run_to_raw
from recsmith.training.listed import SYSTEMS
from recsmith.training.seams.registry import systems
from recsmith.training.seams.system import System

pytestmark = pytest.mark.usefixtures("torchrec")
MAP = "training.systems.dynamic._id_rows"  # compiled code, without which it refuses runs
EXAMPLES = Path(__file__).parents[3] / "examples"
RUNS: dict[str, dict[str, Any]] = {
    "dedup": {"data": {"deduplicate": "auto"}},
    **({"dynamic": {"model": {"dynamic": [{"tables": "a", "rows": 100}]}}} if compiled(MAP) is not None else {}),
    "narrow": {"model": {"narrow": {}, "bottom": [64], "top": [64, 32]}, "steps": 10_000},
    "second_order": {"pipeline": "dance"},
    "tiers": {"rows": {"name": "tiered", "folder": "rows", "cache": 0.5}},
    "stash": {"rows": {"name": "stashed", "folder": "rows"}},
    "towers": {"model": {"table_module": {"name": "towers", "ratio": 2, "towers": [["a"], ["b"]]}}},
    "watch": {"watch": "auto"},
}  # what a run says that has each; dry runs of the others are in launch/test_dry_run.py
SETTINGS = {"arrays": {"members": {"x": [], "y": ["seed=1"]}}, "periods": {"samples": 64}}


class OursContract(SystemContract):
    """The contract of a system by the name of its folder."""

    folder: str

    def record(self, folder: Path) -> System:
        return systems()[list(SYSTEMS).index(self.folder)]

    def run(self, folder: Path) -> Run:
        raw = run_to_raw(self.plain(folder))
        for key, value in RUNS.get(self.folder, {}).items():
            raw[key] = {**raw[key], **value} if key in ("data", "model") else value
        return run_from_raw(raw, "the run")

    def test_its_record_loads_without_torch(self, tmp_path: Path) -> None:
        if self.folder == next(iter(SYSTEMS)):  # all of them load with recsmith.training
            super().test_its_record_loads_without_torch(tmp_path)

    def test_a_dry_run_tells_of_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        if self.folder in RUNS:
            super().test_a_dry_run_tells_of_it(tmp_path)


globals().update({
    f"Test{name.title().replace('_', '')}": type(
        f"Test{name}", (OursContract,), {"folder": name, "settings": SETTINGS.get(name, {})}
    )
    for name in SYSTEMS
})  # fmt: skip
del OursContract, SystemContract


class TestExample(TrainedSystemContract):
    name, settings, wrong = "own_system:WarmRestarts", {"first": 4}, ({"first": "many"}, {})

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))


del TrainedSystemContract
