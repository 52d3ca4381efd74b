"""Scoring of an exported model, sharded over this machine's ranks as in training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.data.same_data import check_same_data
from recsmith.errors import UsageError
from recsmith.files import Raw, Source, decode, encode, source_text
from recsmith.jobs.launch import launch
from recsmith.scoring.scores import Scores
from recsmith.training.job.card import CARD, read_card, trained_model
from recsmith.training.launch.prerequisites import own_modules
from recsmith.training.launch.ranks import local_ranks
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.results.asked_data import read_as_run, with_own_vocabularies
from recsmith.training.run import Run, load_run, names_modules, run_from_raw, run_to_raw
from recsmith.training.run.data import RunData
from recsmith.training.seams.registry import first_of, systems, use_systems_of
from recsmith.units import counted

RANK = "recsmith.training.results.evaluation:evaluate_on_rank"


def evaluate(
    folder: Source, *, data: Any = None, ranks: int | None = None, group: str | None = None, at: Sequence[int] = (),
    pr_auc: bool = False, on_progress: Callable[[str], object] | None = None,
) -> Scores:  # fmt: skip
    """Scores of the model in a run's folder, or of a copy of it, on its data.test or on other data.

    Args:
        folder: the run's folder, or that of the copy.
        data: a path, or a mapping with the format; None: the run's data.test.
        ranks: number of processes that share tables and samples.
        group: feature whose ids say which samples are ranked together (metrics.group); None: the run's.
        at: ranks k for ranking scores (metrics.at); empty: the run's.
        pr_auc: also compute the area under the precision-recall curve (metrics.pr_auc).
        on_progress: called with lines for people.

    Raises:
        UsageError: the folder holds no trained model, or there is no data to score; or it differs in meaning from the
            data that the model was trained on.
    """
    output = Path(source_text(folder, "the folder of a run"))
    file = output / "run.json"
    if file.exists() and first_of(system.trained_runs(load_run(file)) for system in systems()):
        raise UsageError(f"'{output}' holds no trained model; give the folder of one of its members, '{output}/NAME'")
    model = trained_model(folder)
    data = read_as_run(data, model)
    card, run = read_card(model), replace(_run_of(model, data), plan="auto")
    run = replace(run, systems={name: run.systems.get(name, {}) for name in card.systems or {}})
    with own_modules(run, Path.cwd() / "run.json"):
        use_systems_of(card, str(model / CARD))
        for system in systems():
            run = system.scored_run(run, card, model.parent)
    test = data or with_own_vocabularies(run.data.test, model)
    run = replace(
        run, output=str(model.parent), model=card.model, data=replace(run.data, test=test),
        optimizers=replace(run.optimizers, dense=DenseOptimizer()), pipeline="auto",
        metrics=replace(run.metrics, group=group or run.metrics.group, at=tuple(at) or run.metrics.at,
                        pr_auc=pr_auc or run.metrics.pr_auc),
    )  # fmt: skip
    if run.data.test is None:
        raise UsageError("the run names no data.test; say which data to score (--data)")
    count = ranks or local_ranks(run)
    if on_progress is not None:
        on_progress(f"scoring on {counted(count, 'rank')}")
    results = launch(
        RANK,
        {"run": run_to_raw(run), "model": str(model), "where": "data.test" if data is None else "--data"},
        ranks=count,
        timeout_s=float("inf"),
        names_modules=names_modules(run),
    )
    return decode(Scores, results[0], "scores")


def _run_of(model: Path, data: Any) -> Run:
    """The run whose folder contains a model; for a copy elsewhere, a run with this data."""
    file = model.parent / "run.json"
    return load_run(file) if file.exists() else Run(data=RunData(train=data), output=str(model.parent))


def evaluate_on_rank(run: Raw, model: str, where: str = "data.test") -> Raw:
    """Scores of an exported model, on every rank. run: gives the sharding settings. where: name of its data."""
    import torch.distributed as dist

    from recsmith.training.job.evaluating import score
    from recsmith.training.job.export import WEIGHTS, check_together, load_into
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import agreed_plan
    from recsmith.training.job.sharded import rank_device, shard
    from recsmith.training.sources import DatasetSource, open_data

    made = run_from_raw(run, "the run")
    dataset, card = open_data(made.data.test, where), read_card(Path(model))
    use_systems_of(card, str(Path(model) / CARD))
    check_same_data(card.data, dataset.schema, where)
    if dataset.num_samples == 0:
        raise UsageError(f"{where} has no samples; give data to score the model on")
    parts = unsharded(made, DatasetSource(dataset, made.data, made.seed))
    sharded = shard(made, agreed_plan(parts, None, dist.get_world_size()), parts.task, rank_device())
    for system in systems():
        system.before_serving(sharded.model, card)
    check_together(Path(model))
    load_into(sharded, Path(model) / WEIGHTS)
    batch_size = made.data.local_batch_size(dist.get_world_size())
    return encode(score(sharded, dataset, parts.features, batch_size, made))
