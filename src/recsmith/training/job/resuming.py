"""A checkpoint that a job continues from: read without executing what it names, and compared with the job.

A checkpoint's `.metadata` is a pickle, and PyTorch's reader executes what it names. So rank 0 first reads it inertly,
and all ranks refuse it if it names anything that PyTorch does not write.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load

from recsmith._types import noun
from recsmith.adapters.chunk_bytes import RowReader
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.clusters.cluster import LARGEST_WORLD
from recsmith.errors import CorruptFile, check_rules, too_small
from recsmith.files import Raw, by_number, decode, read_json
from recsmith.plans import Plan, load_plan
from recsmith.training.job.sharded import ShardedJob, table_of
from recsmith.training.random_states import restore_random_states
from recsmith.training.run import Run, load_run
from recsmith.training.seams import systems
from recsmith.training.stores.checkpoint import CheckpointRows, PlainObjects, first_cause

CHECKPOINTS = "checkpoints"
STATE, PROGRESS, PLAN_FILE, RUN_FILE = "state", "progress.json", "plan.json", "run.json"
OPTIMIZERS = {"sparse": "sparse", "copied": "sparse", "dense": "dense"}  # by part of the state: the run's optimizer
UNTOLD = ("output", "steps", "plan", "ranks", "checkpoint", "metrics", "watchers", "capture", "data.test", "data.feed",
          "data.engine", "data.ray_address", "data.epochs")  # fmt: skip  # changes of these keys do not affect training
Shape = tuple[int, ...]
WATCHERS = "watchers"  # key of progress.json, in addition to those of systems
BEFORE = "watchers_before"  # key in a fresh job: (watchers' states in the training it starts from, its path)
HOOK = "gradient_hook"  # key of a job's state with a part for each rank
SHOWN = 40  # characters shown of a changed value


@noun
class SavedProgress:
    """The content of progress.json except systems' state: progress, number of ranks, and watchers' states."""

    step: int
    ranks: int
    position: dict[str, Any] | None = None
    scores: dict[str, Any] | None = None
    watchers: dict[str, dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if 1 <= self.ranks <= LARGEST_WORLD else
            f"ranks is {self.ranks}; a job has at least 1 and at most {LARGEST_WORLD:,}",
            too_small("step", self.step),
        )  # fmt: skip


def checked_states(raw: Raw, source: str) -> Raw:
    """The content of progress.json without systems' state, which is checked here; CorruptFile if it is damaged."""
    for each in systems():
        if each.kept and raw.get(each.kept) is not None:
            decode(each.state, raw[each.kept], f"{source}: {each.kept}")
    return {key: value for key, value in raw.items() if key not in {each.kept for each in systems()}}


def kept_in(raw: Raw) -> dict[str, Raw]:
    """The saved states of watchers and systems, by their keys in progress.json."""
    keys = (WATCHERS, *(each.kept for each in systems()))
    return {key: raw[key] for key in keys if key and raw.get(key) is not None}


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint on disk, which does not change; its run and its plan are read once."""

    folder: Path

    @property
    def progress(self) -> Raw:
        """The content of progress.json (SavedProgress); CorruptFile if it is damaged."""
        raw = self._json(PROGRESS)
        known = checked_states(raw, str(self.folder / PROGRESS))
        if not known.keys() <= (ours := {each.name for each in fields(SavedProgress)}) and self.run.systems:
            known = {key: value for key, value in known.items() if key in ours}  # keys of systems that are not loaded
        read = decode(SavedProgress, known, str(self.folder / PROGRESS))
        if self.folder.name.startswith("step-") and self.folder.name != step_name(read.step):
            raise CorruptFile(
                f"'{self.folder / PROGRESS}' is of step {read.step:,}, unlike its folder; remove that folder, and "
                "training goes on from the checkpoint before it"
            )
        return {"position": None, "scores": None, **raw, "step": read.step, "ranks": read.ranks}

    @cached_property
    def plan(self) -> Plan:
        """The plan of the job that saved it."""
        return load_plan(self.folder / PLAN_FILE)

    @cached_property
    def run(self) -> Run:
        """The run that saved it."""
        return load_run(self.folder / RUN_FILE)

    def check_job(self, run: Run, weights: Mapping[str, torch.Tensor], stateful: Sequence[str]) -> None:
        """Refuse, before anything is sharded, another model or another optimizer, as `load` does; CorruptFile.

        weights: weights of the model by name; an optimizer may store those of dense layers in another form. stateful:
        those of `sparse` and `dense` whose optimizers keep state.
        """
        there = CheckpointRows(self.folder / STATE).whole()
        for name in sorted(weights):
            key, here = f"model.{name}", weights[name]
            self._check_shape(key, tuple(there[key].shape) if key in there else None, tuple(here.shape))
            if table_of(name) is not None:
                self._check_type(key, _type(there[key].dtype), _type(here.dtype))
        for group in stateful:
            self._check_name(group, run)
        if "sparse" in stateful:
            for table in filter(None, map(table_of, sorted(weights))):
                self._check_table(table, run)

    def load(self, job: ShardedJob, run: Run) -> None:
        """Load weights and optimizer state into this rank's shards, on every rank; CorruptFile if they do not match."""
        saved = from_rank_0(
            lambda: {
                key: [_type(each.dtype), list(each.shape)]
                for key, each in CheckpointRows(self.folder / STATE).whole().items()
            }
        )
        state = {**job.rows.state_to_load(), **kept_by_systems(job, run)}
        self._check_same(state, {key: (kind, tuple(shape)) for key, (kind, shape) in saved.items()}, run)
        try:
            load(state, storage_reader=RowReader(self.folder / STATE), planner=PlainObjects())
            self._load_hook(job, {key: shape for key, (_, shape) in saved.items()})
        except CheckpointException as error:
            raise CorruptFile(
                f"checkpoint '{self.folder}' is damaged: {first_cause(error)}; without its folder training goes on "
                "from the one before it"
            ) from None
        job.rows.load_state_dict(state)
        for system in systems():
            system.loaded(run, job)

    def _load_hook(self, job: ShardedJob, there: dict[str, list[int]]) -> None:
        """Load the state of the dense-gradient hook: this rank's, or that of all ranks if their number has changed."""
        ranks = self.progress["ranks"]
        wanted = [dist.get_rank()] if ranks == dist.get_world_size() else list(range(ranks))
        prefixes = [f"{HOOK}.{_of_rank(rank)}." for rank in wanted]
        if job.hook is None or not all(any(key.startswith(each) for key in there) for each in prefixes):
            return
        kinds = {key: torch.float64 if key.endswith(".threshold") else torch.float32 for key in there}
        flat = {key: torch.empty(there[key], dtype=kinds[key]) for key in there if key.startswith(tuple(prefixes))}
        load(flat, checkpoint_id=self.folder / STATE, planner=PlainObjects(), no_dist=True)
        job.hook.load_state_dicts(
            [
                {key.removeprefix(each): value for key, value in flat.items() if key.startswith(each)}
                for each in prefixes
            ]
        )

    def restore_random(self) -> None:
        """Restore this rank's random number generators if their states were saved; CorruptFile if those are damaged."""
        name = f"random-{dist.get_rank()}.json"
        if (self.folder / name).exists():
            try:
                restore_random_states(self._json(name))
            except (LookupError, TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise CorruptFile(
                    f"'{self.folder / name}' holds no states of random number generators ({error}); without the file "
                    "training goes on with other random numbers"
                ) from None

    def lines(self, run: Run, ranks: int) -> list[str]:
        """Lines about the checkpoint that training continues from, and about changed settings that affect training."""
        progress = self.progress
        before, now = dict(_settings(self.run)), dict(_settings(run))
        changes = [f"{key} {_shown(before.get(key))} -> {_shown(now.get(key))}"
                for key in dict.fromkeys((*before, *now)) if before.get(key) != now.get(key)]  # fmt: skip
        changes += [f"ranks {progress['ranks']} -> {ranks}"] if progress["ranks"] != ranks else []
        begun = f"going on after step {progress['step']:,} of '{self.folder}'"
        return [begun, f"changed since that checkpoint: {', '.join(changes)}"] if changes else [begun]

    def _json(self, name: str) -> Raw:
        raw = read_json(str(self.folder / name))
        if not isinstance(raw, dict):
            raise CorruptFile(f"'{self.folder / name}' holds no object, as every checkpoint's does; it is damaged")
        return raw

    def _check_same(self, state: dict[str, Any], there: dict[str, tuple[str, tuple[int, ...]]], run: Run) -> None:
        """Refuse a checkpoint whose weights or optimizer state are not this job's. there: type and shape by name."""
        flat = flatten_state_dict(state)[0].items()
        here = {key: (_type(value.dtype), tuple(value.size())) for key, value in flat if _is_tensor(value)}
        for key in sorted(here, key=lambda key: (not key.startswith("model."), key)):
            kind, _, rest = key.partition(".")
            if kind == "optimizer":
                shape = there[key][1] if key in there else None
                self._check_optimizer(key, rest.partition(".")[0], shape, here[key][1], run)
                continue
            self._check_shape(key, there[key][1] if key in there else None, here[key][1])
            self._check_type(key, there[key][0], here[key][0])

    def _check_shape(self, key: str, there: Shape | None, here: Shape) -> None:
        """Refuse weights that the checkpoint lacks, or has with another shape."""
        if there is None:
            raise CorruptFile(f"checkpoint '{self.folder}' is of another model: it has no '{key}'; {_ADVICE}")
        if there != here:
            raise CorruptFile(
                f"checkpoint '{self.folder}' is of another model: '{key}' is {there} there and {here} here; {_ADVICE}"
            )

    def _check_type(self, key: str, there: str, here: str) -> None:
        """Refuse weights of another element type."""
        if there != here:
            raise CorruptFile(
                f"checkpoint '{self.folder}' has another precision: '{key}' is {there} there and {here} here; give the "
                "run the precision that it was saved with, or another output folder"
            )

    def _check_optimizer(self, key: str, part: str, there: Any, here: tuple[int, ...], run: Run) -> None:
        """Refuse the state of another optimizer, even if it has the same shape."""
        group = OPTIMIZERS.get(part, part)
        self._check_name(group, run)
        if there != here:
            raise self._of_other(group, f"keeps other state: '{key}' is {there or 'missing'} there and {here} here")

    def _check_name(self, group: str, run: Run) -> None:
        before, now = (getattr(getattr(each.optimizers, group, None), "name", group) for each in (self.run, run))
        if before != now:
            raise self._of_other(group, f"is {before} there and {now} here")

    def _check_table(self, table: str, run: Run) -> None:
        before, now = (each.optimizers.sparse.of(table).name for each in (self.run, run))
        if before != now:
            raise self._of_other("sparse", f"is {before} for table '{table}' there and {now} here")

    def _of_other(self, group: str, reason: str) -> CorruptFile:
        return CorruptFile(
            f"checkpoint '{self.folder}' is sound, and optimizers.{group} {reason}; give the run the optimizer that it "
            "was saved with, or another output folder, where training begins anew"
        )


def step_name(step: int) -> str:
    """The folder name of a step's checkpoint."""
    return f"step-{step:08d}"


def checkpoint_folders(folder: Path) -> list[Path]:
    """Folders of the complete checkpoints in a folder, the newest last."""
    return sorted(folder.glob("step-*[0-9]"), key=lambda each: by_number(each.name))


def newest_in(folder: Path) -> Saved | None:
    """The newest complete checkpoint in a folder."""
    found = checkpoint_folders(folder)
    return Saved(found[-1]) if found else None


def kept_by_hook(job: ShardedJob) -> dict[str, Any]:
    """This rank's state of the dense-gradient hook, as a checkpoint stores it."""
    kept = {} if job.hook is None else job.hook.state_dict()
    return {HOOK: {_of_rank(dist.get_rank()): kept}} if kept else {}


def kept_by_systems(job: ShardedJob, run: Run) -> dict[str, Any]:
    """Tensors of systems as a checkpoint stores them, to be saved or to be loaded into."""
    found = {system.key.rpartition(".")[2]: dict(system.tensors(run, job)) for system in systems()}
    return {key: tensors for key, tensors in found.items() if tensors}


def _of_rank(rank: int) -> str:
    return f"rank-{rank}"


_ADVICE = "give another output folder (docs/daily.md says how to take along what fits), or train the model as it was"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_tensor(value: object) -> bool:
    return hasattr(value, "size") and hasattr(value, "dtype")


def _settings(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of a run and of its nested nouns, by its key in a file, except those that do not affect training."""
    untold = {*UNTOLD, *(each.key for each in systems() if each.untold)}
    for each in fields(value):
        key, inner = f"{path}{each.name}", getattr(value, each.name)
        if key in untold:
            continue
        if is_dataclass(inner):
            yield from _settings(inner, f"{key}.")
        else:
            yield key, inner


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
