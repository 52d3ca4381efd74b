"""The contract of training systems: for your own (set `name` and `settings`), and for RecSmith's."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recsmith.errors import RecSmithError
from recsmith.files import Raw, decode_part, encode
from recsmith.planning import plan
from recsmith.testing.problems import sample_problems
from recsmith.training import Run, RunData, RunMetrics, RunModel, load_model, train
from recsmith.training.job.card import MODEL, read_card
from recsmith.training.job.resuming import CHECKPOINTS, PROGRESS, checkpoint_folders
from recsmith.training.launch.launching import dry_run
from recsmith.training.run import Checkpointing, load_run
from recsmith.training.seams.registry import systems, use_systems
from recsmith.training.seams.system import System

SAMPLES, BATCH = 640, 32  # twenty steps
CLICKS: Raw = {
    "format": "generator", "seed": 3, "dense": 2, "num_samples": SAMPLES,
    "features": [{"name": "a", "num_embeddings": 400}, {"name": "b", "num_embeddings": 90}],
}  # fmt: skip
NO_MODEL: Any = None  # stands for a model that a run without the system does not need
UNCHANGED: Any = object()  # stands for a step that must be returned unchanged


class SystemContract:
    """The contract of systems, as far as it needs no training. Subclass it as a test class, and set `name`.

    name: how a run names it in `systems`: 'module:Class', or the name of an entry point. settings: those of a run that
    uses it. wrong: settings that it must refuse. A system that needs more than its settings overrides `run`. tmp_path:
    an empty folder, as pytest passes it.
    """

    name: str
    settings: Raw = {}  # noqa: RUF012
    wrong: tuple[Raw, ...] = ()

    def run(self, folder: Path) -> Run:
        """A run with the system, of a few steps on one rank."""
        return replace(self.plain(folder), systems={self.name: self.settings})

    def plain(self, folder: Path) -> Run:
        """The same run without the system."""
        return Run(
            data=RunData(train=CLICKS, batch_size=BATCH), output=str(folder / "out"), ranks=1,
            model=RunModel(embedding_dim=8, bottom=(8,), top=(8,)), checkpoint=Checkpointing(every=5),
            metrics=RunMetrics(every=5),
        )  # fmt: skip

    def record(self, folder: Path) -> System:
        """The system's record for such a run."""
        use_systems(self.run(folder))
        return next(each for each in systems() if each.name == self.name)

    def test_a_run_without_it_is_as_it_was(self, tmp_path: Path) -> None:
        """The system does not affect a run that does not use it."""
        record, run = self.record(tmp_path), self.plain(tmp_path)
        problem = sample_problems()[0]
        placed = plan(problem.workload, problem.cluster, planner="size_greedy", space=problem.space).plan
        nothing: dict[str, Any] = {
            "wrong": [each for each in record.wrong(run) if each is not None], "watchers": record.watchers(run),
            "table_parts": record.table_parts(run.model), "data_parts": record.data_parts(run),
            "row_parts": record.row_parts(run), "placed_parts": record.placed_parts(run, placed),
            "layer_parts": record.layer_parts(run, undecided=True), "plan_rules": record.plan_rules(run, 1),
            "run_of_plan": record.run_of_plan(run, 1), "trains_layers": record.trains_layers(run),
            "tables_rest": record.tables_rest(run), "needs_step": record.needs_step(run),
            "bytes_of_number": record.bytes_of_number(run), "more_bytes": record.more_bytes(run, placed),
            "attached": record.attached(run, NO_MODEL), "kernel_facts": record.kernel_facts(run, placed),
            "watched_before": record.watched_before(run),
            "start_facts": record.start_facts(run, placed), "start_lines": record.start_lines(run, placed),
            "trained_runs": record.trained_runs(run), "describe": record.describe(run),
        }  # fmt: skip
        for face, answer in nothing.items():
            assert not answer, f"{face} answers {answer!r} for a run that does not have the system"
        assert record.kept_plan(run, placed) is placed
        assert record.change_step(run, placed, UNCHANGED, 8) is UNCHANGED
        assert record.change_told_step(run, placed, 1, UNCHANGED) is UNCHANGED
        job: Any = SimpleNamespace(run=run, attached={}, output=tmp_path, plan=placed)
        assert record.line(job, 1) == ({}, "")
        assert record.result(job) == {}
        assert record.brought(job) == {}

    def test_its_settings_are_a_noun_that_is_read_strictly(self, tmp_path: Path) -> None:
        """Its settings are a frozen noun, and unknown or wrong settings are refused."""
        record = self.record(tmp_path)
        if not isinstance(record.settings, type):
            return
        made = decode_part(record.settings, self.settings, record.key)
        assert decode_part(record.settings, json.loads(json.dumps(encode(made))), record.key) == made
        for raw in ({**self.settings, "no_such_setting": 1}, *self.wrong):
            try:
                decode_part(record.settings, raw, record.key)
                said = ""
            except RecSmithError as error:
                said = str(error)
            assert record.key in said, f"{record.key} takes {raw}" if not said else f"an error without a key: {said}"
        try:
            setattr(made, next(iter(record.settings.__dataclass_fields__), "x"), None)
        except FrozenInstanceError:
            return
        raise AssertionError(f"the settings of {record.key} can be changed; decorate them with recsmith.training.noun")

    def test_what_it_offers_is_another_run(self, tmp_path: Path) -> None:
        """Each switch that it offers changes the run, and is not offered again then."""
        run = self.plain(tmp_path)
        for switch in self.record(tmp_path).switches(run):
            made = load_run(run, switch.settings)
            assert made != run, f"'{switch.name}' changes nothing of a run: {switch.settings}"
            assert switch not in self.record(tmp_path).switches(made), f"'{switch.name}' is offered where it is on"

    def test_its_record_loads_without_torch(self, tmp_path: Path) -> None:
        """The module of its record can be imported without torch."""
        module = type(self.record(tmp_path)).__module__
        code = f"import sys, recsmith.training, {module}; print('torch' in sys.modules)"
        path = json.dumps(sys.path)
        ran = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:] = {path}; {code}"], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert ran.stdout.strip() == "False", ran.stderr or f"{module} imports torch; import it in the methods"

    def test_a_dry_run_tells_of_it(self, tmp_path: Path) -> None:
        """A dry run mentions it."""
        with_it, without = dry_run(self.run(tmp_path)), dry_run(self.plain(tmp_path))
        assert set(with_it) - set(without), "a dry run says nothing of it; answer `summary` or `notes`"


class TrainedSystemContract(SystemContract):
    """The contract of systems that train with ranks on this machine: some jobs of a few seconds.

    exact: whether a job resumed from a checkpoint trains the same bits as one that was never interrupted.
    """

    exact = True

    def test_it_goes_on_with_the_same_bits_is_in_the_card_and_can_be_deleted(self, tmp_path: Path) -> None:
        """Training resumes with the same bits, the card can be read, and the job can go on without the system."""
        once, twice = self.run(tmp_path / "once"), self.run(tmp_path / "twice")
        train(replace(once, steps=10))
        train(replace(twice, steps=5))
        train(replace(twice, steps=10))
        models = [Path(each.output) / MODEL for each in (once, twice)]
        weights = [(model / "weights.safetensors").read_bytes() for model in models]
        if self.exact:
            assert weights[0] == weights[1], "a job that goes on from a checkpoint trains other bits"
        record, card = self.record(tmp_path), read_card(models[0])
        assert load_model(models[0]).card == card
        self._check_state(Path(once.output), record)
        if record.name:
            train(replace(self.plain(tmp_path / "twice"), steps=15))  # the same job, without the system
            assert read_card(models[1]).step == 15
            assert read_card(models[1]).systems is None

    def _check_state(self, output: Path, record: System) -> None:
        """The state in a checkpoint can be read as the noun that the record names."""
        newest = checkpoint_folders(output / CHECKPOINTS)[-1]
        kept = json.loads((newest / PROGRESS).read_text("utf-8")).get(record.kept) if record.kept else None
        if kept is not None:
            decode_part(record.state, kept, record.kept)
