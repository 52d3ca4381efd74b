"""Trains a policy and writes it: draw tasks, train, judge on unseen tables, write.

The run's folder is beside the output (NAME.run for NAME.safetensors); from it an interrupted run can continue:

    settings.json             the settings; a run with others is refused
    checkpoint.safetensors    networks, optimizers and samples after a number of iterations; replaced as a whole
    journal.jsonl             a line for each iteration
    events.out.tfevents.*     the same for TensorBoard, if it is installed

All random numbers depend only on the seed and the number of the iteration, so a continued run ends like an
uninterrupted one.
"""

import json
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recsmith.costs import Evaluator, cost_model
from recsmith.costs.weight_files import SUFFIX
from recsmith.errors import CorruptFile, NoPlanFound, UsageError
from recsmith.files import Raw, check_is_file, dump_json, encode, parse_json, read_raw, replace_file, write_text
from recsmith.jobs.log import Board, has_tensorboard
from recsmith.learning.policies import TRAINING_SEED, PolicySettings, SplitIteration, SplitRecipe, SplitSettings
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of
from recsmith.learning.policies.own_tables import digest_of, own_tables
from recsmith.learning.policies.tasks import TESTING, PlacementTask, parse_size
from recsmith.learning.preparation import check_output, import_training
from recsmith.measuring.folder import lock_folder
from recsmith.measuring.journal import NAME as JOURNAL
from recsmith.measuring.journal import Journal, read_journal
from recsmith.planners.autoshard import AutoShard
from recsmith.planners.dreamshard import DreamShard
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.placing import TRAINED, items_of
from recsmith.planners.placing.policy_files import HeldOutTasks, PolicyCard, PolicyKind
from recsmith.planners.placing.policy_network import PlacingNetwork
from recsmith.planners.placing.split_policy import SplitCard, load_splits, save_splits
from recsmith.planners.search.device_state import Assignment
from recsmith.problems import Footprint

CLASSIC = ("size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy")  # the paper's baselines
JUDGING_SEED = 1  # seed of tasks that judge; those that train, and those of the benchmark, have others
JUDGED = 20  # tasks of unseen tables that judge the policy on its card

PolicyName = Literal["dreamshard", "autoshard"]
KINDS: dict[PolicyName, PolicyKind] = {"dreamshard": DreamShard.kind, "autoshard": AutoShard.kind}


SETTINGS, CHECKPOINT = "settings.json", "checkpoint.safetensors"


class RunFolder:
    """An open folder of a run; the caller holds its lock (`lock_folder` of measuring/folder.py)."""

    def __init__(self, path: Path, settings: Raw) -> None:
        """Raise UsageError if the folder is of a run with other settings, or holds other files."""
        self.path = path
        text = dump_json(settings)
        found = path / SETTINGS
        if found.exists():
            _check_same(path, read_raw(str(found), settings["schema"]), settings)
        else:
            foreign = sorted(entry.name for entry in path.iterdir())
            if foreign:
                raise UsageError(f"'{path}' holds '{foreign[0]}' and no {SETTINGS}; give a new or an empty folder")
            write_text(str(found), text)
        self._journal: Journal | None = None
        self._board: Board | None = None

    def load(self) -> tuple[dict[str, Any], int] | None:
        """The state in the checkpoint, and the number of iterations before it; None without one."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        safetensors: Any = import_module("safetensors")
        check_is_file(path)
        try:
            with safetensors.safe_open(path, framework="np") as file:
                state = {name: file.get_tensor(name) for name in list(file.keys())}
                metadata: dict[str, str] = file.metadata() or {}
                iteration = int(str(parse_json(metadata["iteration"], str(path))))
        except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
            raise self._damaged(error) from None
        return state, iteration

    def restore(self, training: Any) -> bool:
        """Continue a training from the checkpoint; False without one.

        Raises:
            CorruptFile: the checkpoint is damaged, lacks an array, or has one of another shape.
        """
        kept = self.load()
        if kept is None:
            return False
        try:
            training.restore(*kept)
        except (ValueError, IndexError, TypeError) as error:
            raise self._damaged(error) from None
        return True

    def _damaged(self, error: Exception) -> CorruptFile:
        path = self.path / CHECKPOINT
        return CorruptFile(f"'{path}' is no whole checkpoint ({error}); remove it, and training begins anew")

    def save(self, state: dict[str, Any], iteration: int) -> None:
        """Replace the checkpoint."""
        from safetensors.numpy import save

        replace_file(self.path / CHECKPOINT, save(state, metadata={"iteration": str(iteration)}))

    def log(self, row: dict[str, Any]) -> None:
        """Write an iteration to the journal, and to TensorBoard. row: includes its `number`."""
        if self._journal is None:
            self._open(row["number"])
        assert self._journal is not None, "it was just opened"
        self._journal.write(row)
        if self._board is not None:
            self._board.write(row["number"], row)

    def _open(self, number: int) -> None:
        """Open the journal; drop lines from this number on, which are newer than the checkpoint."""
        rows = read_journal(self.path, lambda row: "" if "number" in row else "it has no number")
        kept = [row for row in rows if row["number"] < number]
        if len(kept) < len(rows):
            replace_file(self.path / JOURNAL, b"".join(json.dumps(row).encode() + b"\n" for row in kept))
        self._journal = Journal(self.path)
        self._board = Board(self.path, number) if has_tensorboard() else None

    def close(self) -> None:
        """Flush TensorBoard's events."""
        if self._board is not None:
            self._board.close()


def _check_same(path: Path, found: Raw, wanted: Raw) -> None:
    """Raise UsageError if settings differ in more than their schema; it names the first difference."""
    names = [name for name in {**wanted, **found} if name != "schema" and found.get(name) != wanted.get(name)]
    if names:
        raise UsageError(
            f"'{path}' holds a run with {names[0]} {found.get(names[0])} instead of {wanted.get(names[0])}; give "
            "another --output, or remove that folder"
        )


def of_tables(own: str | None) -> dict[str, Any]:
    """The settings for a user's tables, so that a run does not continue with others. own: their file or folder."""
    return {"own": own, "digest": None if own is None else digest_of(own_tables(own))}


def iterations_of(planner: PolicyName, settings: PolicySettings, fields: dict[str, Any]) -> int:
    """Number of iterations of a training. fields: of its recipe."""
    return _module(planner).recipe_of(settings, fields).iterations


def learn_policy(
    planner: PolicyName,
    settings: PolicySettings,
    output: str,
    fields: dict[str, Any],
    *,
    budget_s: float | None = None,
    on_iteration: Callable[[Any], None] | None = None,
) -> PolicyCard:
    """Train a policy of a planner and write it; fields: of its recipe. An interrupted run continues.

    Ctrl-C and the budget end training at the last complete iteration, whose policy is written.

    Raises:
        UsageError: the hardware cannot be measured, there are no such tasks, or a run with other settings is beside the
            output.
        MissingExtra: PyTorch is missing.
        RecSmithError: the hardware failed, or the output cannot be written; an existing file is unchanged.
    """
    check_output(output)
    ends = None if budget_s is None else time.monotonic() + budget_s
    module, kind = _module(planner), KINDS[planner]
    recipe = module.recipe_of(settings, fields)
    judging = settings.draw(JUDGED, JUDGING_SEED, TESTING)
    tasks = settings.draw(settings.tasks)
    meter = PlacementMeter(settings.hardware, (*tasks, *judging))
    training = module.training_of(recipe, settings, tasks, meter)
    folder = Path(output.removesuffix(SUFFIX) + ".run")
    with lock_folder(folder):
        run = RunFolder(folder, {"schema": f"recsmith/{planner}-run/1", **_every(settings), **_every(recipe)})
        _train(training, run, ends, on_iteration)
    network, row = training.networks.frozen(), parse_size(settings.row)
    card = PolicyCard(
        hardware=meter.hardware.name, device=meter.hardware.device, versions=meter.hardware.versions,
        devices=row.devices, tables=row.tables, tasks=len(tasks), task_seed=TRAINING_SEED, seed=recipe.seed,
        measured=training.measured, iterations=training.iteration, reward=recipe.reward,
        held_out=held_out(network, meter, judging), own=settings.own, digest=settings.digest,
    )  # fmt: skip
    kind.save(output, network.tensors, card)
    kind.load(Path(output))
    return card


def learn_splits(
    settings: SplitSettings, output: str, fields: dict[str, Any], *, budget_s: float | None = None,
    on_iteration: Callable[[SplitIteration], None] | None = None,
) -> SplitCard:  # fmt: skip
    """Train the policy of splits and write it; fields: of its recipe. An interrupted run continues.

    Raises:
        UsageError: the cost model or the device does not exist, nothing can be split, or a run with other settings is
            beside the output.
        MissingExtra: PyTorch is missing.
        RecSmithError: the output cannot be written; an existing file is unchanged.
    """
    check_output(output)
    ends = None if budget_s is None else time.monotonic() + budget_s
    module, recipe = import_training("recsmith.learning.policies.splits"), SplitRecipe(**fields)
    cost_model(settings.cost_model)  # refused before tasks are drawn; warns if it is a formula
    drawn = settings.draw(settings.tasks)
    tasks = module.split_tasks(drawn, settings.cost_model)
    if not tasks:
        raise UsageError(f"nothing can be split in tasks of {', '.join(settings.sizes)}; give --sizes such as 4x50")
    training = module.SplitTraining(recipe, tasks)
    folder = Path(output.removesuffix(SUFFIX) + ".run")
    with lock_folder(folder):
        wanted = {**_every(settings), "sizes": list(settings.sizes), **_every(recipe)}
        run = RunFolder(folder, {"schema": "recsmith/splits-run/1", **wanted})
        _train(training, run, ends, on_iteration)
    judging = module.split_tasks(settings.draw(1, JUDGING_SEED, TESTING), settings.cost_model)
    policy = training.frozen()
    card = SplitCard(
        cost_model=settings.cost_model, device=settings.device, sizes=settings.sizes, tasks=len(drawn),
        task_seed=TRAINING_SEED, seed=recipe.seed, iterations=training.iteration, judged=len(judging),
        ahead=module.ahead_of_longest_first(judging, policy), own=settings.own, digest=settings.digest,
    )  # fmt: skip
    save_splits(output, policy, card)
    load_splits(output)
    return card


def _every(noun: Any) -> dict[str, Any]:
    """All fields of a noun, including those with default values."""
    return {name: getattr(noun, name) for name in noun.__dataclass_fields__}


def _module(planner: PolicyName) -> Any:
    """The module that trains a planner's policy."""
    return import_training(f"recsmith.learning.policies.{planner}")


def _train(training: Any, run: RunFolder, ends: float | None, on_iteration: Callable[[Any], None] | None) -> None:
    """Continue training from the folder's checkpoint; after Ctrl-C, the state of the last complete iteration counts."""
    run.restore(training)

    def heard(iteration: Any) -> None:
        run.log(encode(iteration))
        run.save(training.state(), iteration.number)
        if on_iteration:
            on_iteration(iteration)

    try:
        training.run(heard, ends)
    except KeyboardInterrupt:
        if not run.restore(training):
            raise
    finally:
        run.close()
    if training.iteration == 0:
        raise UsageError("the time is over before the first iteration; give more --budget")


def held_out(network: PlacingNetwork, meter: PlacementMeter, tasks: Sequence[PlacementTask]) -> HeldOutTasks:
    """A policy's steps on unseen tasks, with those of the classic greedies; tasks that one cannot plan are left out."""
    steps: dict[str, list[float]] = {name: [] for name in CLASSIC}
    own: list[float] = []
    off: list[float] = []
    for task in tasks:
        evaluator = evaluator_of(task)
        draft, predicted_s = _best_rollout(network, evaluator)
        plans = {name: _greedy(name, evaluator) for name in CLASSIC}
        if draft is None or None in plans.values():
            continue
        measured = meter.measure(evaluator, draft.footprint(evaluator.problem)).step_s
        own.append(measured)
        off.append(abs(predicted_s / measured - 1))
        for name, footprint in plans.items():
            if footprint is not None:
                steps[name].append(meter.measure(evaluator, footprint).step_s)
    if not own:
        raise UsageError("no unseen task has a plan of every planner; train on tasks of another size")
    best = min(CLASSIC, key=lambda name: float(np.mean(steps[name])))
    return HeldOutTasks(
        tasks=len(own), devices=tasks[0].cluster.world_size, tables=len(tasks[0].workload.tables),
        step_s=float(np.mean(own)), best_greedy=best,
        greedy_step_s=float(np.mean(steps[best])), predicted_off=float(np.median(off)),
    )  # fmt: skip


def _best_rollout(network: PlacingNetwork, evaluator: Evaluator) -> tuple[Assignment | None, float]:
    """The greedy roll-out with the shortest predicted step over the rules of column splits; and that step."""
    best: tuple[Assignment | None, float] = (None, float("inf"))
    for rule in TRAINED:
        items = items_of(evaluator.problem, evaluator, rule)
        if items is None:
            continue
        items = network.order(items)
        found = network.rollout(items)
        if not found.dead[0] and found.step_s[0] < best[1]:
            best = items.assignment(found.target[0]), float(found.step_s[0])
    return best


def _greedy(name: str, evaluator: Evaluator) -> Footprint | None:
    planner = next(each for each in GREEDIES if each.name == name)
    try:
        return planner.plan(evaluator.problem, evaluator).footprint
    except NoPlanFound:
        return None
