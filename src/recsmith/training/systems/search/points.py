"""Train what a search found from scratch, next to uniform widths and the power rule: AUC against price."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith.embeddings.workloads import compress, compress_to
from recsmith.errors import UsageError
from recsmith.searching.outcome import SearchOutcome
from recsmith.searching.prices import planned
from recsmith.searching.samples import rules_of, rules_setting
from recsmith.training.results.points import SearchedPoint
from recsmith.training.results.variants import TrainBench, VariantRow, bench_train
from recsmith.training.run import save_run
from recsmith.training.systems.search.searching import RUN, Prepared
from recsmith.workloads import Workload

AS_IT_IS, SEARCH, UNIFORM, POWER = "as it is", "search", "uniform", "power rule"
TRAINED = "trained"


def points(
    prepared: Prepared, found: SearchOutcome, say: Callable[[str], object] = lambda _: None
) -> list[SearchedPoint]:
    """The run as it is, sampled architectures, uniform widths, and the power rule at the samples' sizes; untrained."""
    workload, space = prepared.priced.workload, found.space

    def price(made: Workload) -> float:
        return planned(made, prepared.priced.sizes, space.unit, prepared.priced, **prepared.search).price

    made = [SearchedPoint(kind=AS_IT_IS, name="as-it-is", settings=(), price=found.whole.price)]
    for each in found.samples:
        made.append(SearchedPoint(kind=SEARCH, name=each.name, settings=each.settings, price=each.replanned.price))
    widest = prepared.run.model.embedding_dim
    for width in sorted({choice.width for each in space.tables for choice in each.options if choice.width < widest}):
        tables = tuple(replace(table, embedding_dim=min(width, table.embedding_dim)) for table in workload.tables)
        cost, settings = price(replace(workload, tables=tables)), (f"model.embedding_dim={width}",)
        made.append(SearchedPoint(kind=UNIFORM, name=f"uniform-{width}", settings=settings, price=cost))
    for each in found.samples:
        factor = workload.weight_bytes / compress(workload, rules_of(space, each.picks)).workload.weight_bytes
        try:
            rule = compress_to(workload, factor, "mixed_dimension", above_rows=0)
        except UsageError as error:
            say(f"the power rule beside {each.name} is left out: {error}")
            continue
        settings = (rules_setting(rule.rules),)
        if all(point.settings != settings for point in made):
            name = each.name.replace("sample", "power")
            made.append(SearchedPoint(kind=POWER, name=name, settings=settings, price=price(rule.workload)))
    return made


def trained(
    asked: list[SearchedPoint], prepared: Prepared, folder: str, seeds: int, on_progress: Callable[[str], Any]
) -> tuple[list[SearchedPoint], list[VariantRow]]:
    """The points with their AUC on data.test over seeds. Trainings that the folder holds are not repeated."""
    save_run(prepared.run, str(Path(folder) / RUN))
    first = prepared.run.seed
    bench = TrainBench(
        run=str(Path(folder) / RUN), variants={point.name: point.settings for point in asked},
        seeds=tuple(range(first, first + seeds)),
    )  # fmt: skip
    rows = bench_train(bench, str(Path(folder) / TRAINED), on_progress=on_progress)
    made = [replace(point, auc=row.auc, auc_within=row.auc_within) for point, row in zip(asked, rows, strict=True)]
    return made, rows
