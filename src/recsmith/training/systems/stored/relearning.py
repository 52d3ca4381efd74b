"""Learn the hashes of a run again, and convert its newest checkpoint to them, for a run that continues.

What ids have in common changes, and new ids appear, but a learned hash does not change. So from time to time it is
learned anew from current data. The vector of an id is then in another row, shared with other ids.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from recsmith._types import Ints
from recsmith.embeddings import IdMap, load_maps, physical, save_maps
from recsmith.embeddings.compression import CompressionRule
from recsmith.embeddings.id_maps import carried_rows
from recsmith.errors import UsageError
from recsmith.training.job.checkpoints import PLAN_FILE, PROGRESS, RUN_FILE, STATE
from recsmith.training.job.resuming import checkpoint_folders
from recsmith.training.run import Run, save_run
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data
from recsmith.training.stores.checkpoint import CheckpointRows, write_checkpoint
from recsmith.training.systems.stored.id_maps import OnProgress, hash_maps, id_counts
from recsmith.training.systems.stored.kept_maps import keep_maps, kept_names

CHECKPOINTS, MAPS, RUN, HASHED = "checkpoints", "maps.safetensors", "run.yaml", "hashed"


def relearn(run: Run, folder: str | Path, *, on_progress: OnProgress = lambda _: None) -> Run:
    """Learn a run's hashes again from its training data, and write a run that continues with them to a new folder.

    The folder gets the newest checkpoint with converted weights and optimizer state: each row is the mean of its ids'
    former rows, weighted by how often the ids occur. Everything else in the checkpoint is unchanged, so `train`
    continues with the next sample. run: with the data to learn from, which may be newer than its former training data.
    Memory: the whole checkpoint on this machine. Cost: a training with 4 or 8 columns (docs/compress.md), and a pass
    over the data.

    Raises:
        UsageError: the run has no learned hash or no checkpoint, or the folder exists already.
        And what training and clustering raise.
    """
    target = Path(folder)
    saved = checkpoint_folders(Path(run.output, CHECKPOINTS))
    numbers = [n for n, rule in enumerate(run.model.compression) if rule.method == "learned_hash"]
    if not numbers:
        raise UsageError("the run has no learned hash to learn again; docs/compress.md says how to give it one")
    if not saved:
        raise UsageError(f"'{run.output}' has no checkpoint to carry over; train the run first")
    if target.exists():
        raise UsageError(f"'{target}' is there already; name a new folder for the run that goes on")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    made = {number: _relearned(run, number, on_progress) for number in numbers}
    rules = list(run.model.compression)
    for number, (_, after, _) in made.items():
        name = MAPS if len(made) == 1 else f"{number}-{MAPS}"
        save_maps(after, partial / name)
        rules[number] = replace(rules[number], maps=str(target / name))
    checkpoint = partial / CHECKPOINTS / saved[-1].name
    on_progress(f"carrying over '{saved[-1]}'")
    _carry(saved[-1], checkpoint, made)
    goes_on = replace(run, output=str(target), model=replace(run.model, compression=tuple(rules)))
    partial.rename(target)
    keep_maps(goes_on.model, target)
    save_run(goes_on, target / CHECKPOINTS / saved[-1].name / RUN_FILE)
    save_run(goes_on, target / RUN)
    return goes_on


Learned = tuple[dict[str, IdMap], dict[str, IdMap], dict[str, Ints]]  # maps before and after, and counts, by table


def _relearned(run: Run, number: int, on_progress: OnProgress) -> Learned:
    """The hashes of a rule before and after, and how often each id occurs."""
    rule: CompressionRule = run.model.compression[number]
    mapped = [n for n, each in enumerate(run.model.compression) if each.maps is not None]
    before = load_maps(Path(run.output) / kept_names(run.model)[mapped.index(number)])
    after = hash_maps(run, rule.factor, above_rows=rule.above_rows, only=tuple(before), on_progress=on_progress)
    dataset = open_data(run.data.train, "data.train")
    tables = [table for table in tables_of(run.model, dataset.schema) if table.name in before]
    return before, after, id_counts(dataset, tables)


def _carry(source: Path, target: Path, made: dict[int, Learned]) -> None:
    """Write a checkpoint with the rows of some tables converted."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.name in (PROGRESS, PLAN_FILE) or file.name.startswith("random-"):
            shutil.copy2(file, target / file.name)
    state = CheckpointRows(source / STATE).state_dict()
    for before, after, counts in made.values():
        for table in after:
            name = f".{physical(table, HASHED)}.weight"
            rows = next(len(value) for key, value in state.items() if key.startswith("model.") and key.endswith(name))
            for key in [key for key, value in state.items() if name in key and value.dim()]:
                state[key] = _carried(state[key], before[table], after[table], counts[table], rows)
    write_checkpoint(target / STATE, state)


def _carried(tensor: torch.Tensor, before: IdMap, after: IdMap, counts: Ints, rows: int) -> torch.Tensor:
    """Convert the weights or state of a table; state with a number per row and column shard, shard by shard."""
    parts = np.split(tensor.to(torch.float64).numpy(), max(1, len(tensor) // rows))
    made = np.concatenate([carried_rows(part, before, after, counts, rows) for part in parts])
    return torch.from_numpy(made).to(tensor.dtype)
