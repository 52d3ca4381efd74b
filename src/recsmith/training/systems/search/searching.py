"""An architecture search on a run: its space and prices, the training of the network, and sampled architectures.

The network is a run like any other (`<folder>/network/run.json`), so it trains under a plan and on several ranks, and
continues from its newest checkpoint. The results are settings to apply to the given run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recsmith._components import NAME
from recsmith._types import Floats, noun
from recsmith.clusters import Cluster, load_cluster
from recsmith.embeddings.workloads import compress
from recsmith.errors import RecSmithError, UsageError, check_rules
from recsmith.files import decode, encode
from recsmith.planning import plan
from recsmith.plans import load_plan
from recsmith.prediction.dense_shapes import numbers_of
from recsmith.prediction.job_step import copied_numbers
from recsmith.searching import Picks, SearchSpace, SpaceOptions
from recsmith.searching.outcome import Sample, SearchOutcome
from recsmith.searching.prices import Priced, check_pays, replanned, with_prices
from recsmith.searching.samples import drawn, frontier, rules_of, settings_of
from recsmith.searching.space import BOTTOM, TOP, make_space
from recsmith.training.job.run_step import plain_step, planned_as_run
from recsmith.training.launch.launching import train
from recsmith.training.launch.ranks import local_ranks
from recsmith.training.run import MADE_HERE, Checkpointing, Run, load_run
from recsmith.training.sources import BatchSource, open_source, reading_of
from recsmith.training.systems.stored.compressing import run_workload

NETWORK, RUN = "network", "run.json"
WARM_UP = 0.5  # share of the steps in which only weights are trained; trade-off: choices get the rest
SAMPLES = 4  # most sampled architectures that are reported, since each takes a training
CANDIDATES = 32  # architectures scored in the network; trade-off: more find better ones, and take longer
SCORED = 200_000  # most samples of data.test on which they are scored


@noun
class NetworkSearch:
    """The request of a search.

    under: the highest price of a sampled architecture, as a share of the run's price. price: step, bytes; auto: step,
    if that pays. coefficient: weight of the logarithm of the expected price in the loss of choices. cluster: the
    cluster for prices; none: that of the run's plan file, or this machine.
    """

    under: float = 1.0
    price: Literal["auto", "step", "bytes"] = "auto"
    coefficient: float = 0.1
    cluster: str | None = None
    options: SpaceOptions = SpaceOptions()

    def __post_init__(self) -> None:
        check_rules(
            None if 0 < self.under <= 1 else f"--under is {self.under:.4g} of the run's price; above 0% and up to 100%",
            None if self.coefficient >= 0 else f"--coefficient is {self.coefficient:g}; 0 or more",
        )


@dataclass(frozen=True)
class Prepared:
    """A search that is ready to start. network: the run of the network. search: options of the planner."""

    run: Run
    network: Run
    request: NetworkSearch
    space: SearchSpace
    priced: Priced
    search: dict[str, Any]


def prepare(run: Run, request: NetworkSearch, folder: str, **search: Any) -> Prepared:
    """The priced space of a run, and the run of the network; writes nothing.

    search: options of `plan`.

    Raises:
        UsageError: the run cannot be searched, nothing can be chosen, no architecture is cheap enough, the split has
            too few samples, or a search would save too little of the step.
        And what opening its data and planning raise.
    """
    _check_run(run)
    source, workload = open_source(run), run_workload(run)
    ranks = local_ranks(run)
    steps = run.steps or source.steps(run.data.batch_sizes(ranks), ranks)
    _check_split(source.length, run.data.largest_batch, steps)
    sizes = {BOTTOM: run.model.bottom, TOP: run.model.top} if run.model.name in ("dlrm", "dlrm_dcn") else {}
    dense, features = max(1, len(source.schema.dense)), sum(len(table.features) for table in workload.tables)
    priced = Priced(workload, _cluster(run, request), sizes, *_reads(run, dense, features, bool(sizes)))
    unit = "bytes" if request.price == "bytes" else "step"
    space = with_prices(make_space(workload, request.options, sizes, dense), priced, unit, **search)
    if request.price == "auto":
        check_pays(space, *(sample_step_s(run, source, priced, space, picks, search)
                            for picks in (space.largest, space.cheapest)))  # fmt: skip
    ceiling = space.ceiling(request.under) / space.whole
    assert steps is not None
    words = {
        "steps": steps, "warm_up": round(WARM_UP * steps), "coefficient": request.coefficient,
        "fixed": space.fixed / space.whole,
    }  # fmt: skip
    step = {NAME: "search", **words, "ceiling": ceiling if request.under < 1 else 0.0}
    model = replace(run.model, table_module={NAME: "searched", "space": encode(space)})
    network = replace(
        run, model=model, pipeline=step, output=str(Path(folder) / NETWORK), plan="auto",
        checkpoint=run.checkpoint or Checkpointing(),
    )  # fmt: skip
    return Prepared(run, network, request, space, priced, search)


def sample_step_s(
    run: Run, source: BatchSource, priced: Priced, space: SearchSpace, picks: Picks, search: dict[str, Any]
) -> float:
    """Predicted seconds of a step of a sampled architecture, planned anew, as in a dry run; its price on GPUs."""
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.sharded import dense_shapes

    made = load_run(run, settings_of(space, picks, priced.sizes))
    tables = compress(priced.workload, rules_of(space, picks)).workload
    found = plan(tables, priced.cluster, **search).plan
    shapes = dense_shapes(unsharded(made, source).task)
    numbers = numbers_of(shapes) + copied_numbers(found)
    step = plain_step(made, planned_as_run(made, found), shapes, numbers, reading=reading_of(source))
    return space.price(picks) if step is None else step.step_s


def _check_run(run: Run) -> None:
    named = run.pipeline if isinstance(run.pipeline, str) else str(run.pipeline.get(NAME))
    check_rules(
        None
        if run.data.test is not None
        else "the run names no data.test, on which samples are compared; give it validation data, and keep the true "
        "test data for the end",
        None
        if run.model.narrow is None
        else "model.narrow does not go with a search yet, whose layers are whole; drop it",
        None if run.data.periods is None else "a search reads its data in epochs; drop data.periods",
        None if run.data.deduplicate == "off" else "data.deduplicate does not go with a search yet; drop it",
        None
        if not run.model.compression and run.model.table_module is None
        else "the run's tables are already compressed or built otherwise (model.compression, model.table_module); "
        "search the run without, whose samples are such tables",
        None
        if named in ("auto", "base")
        else f"pipeline is {named}, and a search makes its own steps; write pipeline: base",
    )


def _check_split(samples: int | None, batch: int, steps: int | None) -> None:
    held = 0 if samples is None else samples // 5
    check_rules(
        "the data does not say how many samples it has, so nobody knows when the temperature has fallen; give the run "
        "steps"
        if steps is None
        else None,
        f"choices learn from a fifth of the {samples:,} samples, {held:,}, which are fewer than a batch of {batch:,}; "
        "give more data, or a smaller data.batch_size"
        if samples is not None and held < batch
        else None,
    )


def _cluster(run: Run, request: NetworkSearch) -> Cluster:
    if request.cluster is not None:
        return load_cluster(request.cluster)
    if run.plan not in MADE_HERE:
        return load_plan(run.plan).cluster
    from recsmith.jobs.local_cluster import this_cluster

    return this_cluster(local_ranks(run), local_ranks(run))


def _reads(run: Run, dense: int, features: int, layers: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Input columns of the first layer, and output columns of the last, for bottom and top (torchrec.models.dlrm)."""
    if not layers:
        return {}, {}
    columns = run.model.embedding_dim
    pairs = columns + features + features * (features - 1) // 2
    top = pairs if run.model.name == "dlrm" else (features + 1) * columns
    return {BOTTOM: dense, TOP: top}, {BOTTOM: columns, TOP: 1}


def search(prepared: Prepared, on_progress: Callable[[Any], object] | None = None) -> SearchOutcome:
    """Train the network, or continue its training, and return what it found.

    Raises:
        UsageError: the folder holds a search of another space, or with other settings.
        RecSmithError: training was interrupted; the same call continues it.
    """
    output = Path(prepared.network.output)
    _check_before(prepared, output)
    result = train(prepared.network, on_progress=on_progress)
    if not result["complete"]:
        raise RecSmithError(f"'{output}' was asked to end; the same command goes on with the search")
    return found_in(prepared)


def _check_before(prepared: Prepared, output: Path) -> None:
    """Raise UsageError if the folder holds a network that was trained for another search."""
    if not (output / RUN).exists():
        return
    before: Any = load_run(str(output / RUN))
    prepared.space.check_same(decode(SearchSpace, before.model.table_module["space"], f"{output / RUN}"), f"'{output}'")
    now: Any = prepared.network.pipeline
    for name in ("coefficient", "ceiling"):
        if now[name] != before.pipeline[name]:
            raise UsageError(
                f"'{output}' began with {name} {before.pipeline[name]:g} (0: none), and now it is {now[name]:g}; give "
                "the same --under and --coefficient, or another folder"
            )


def found_in(prepared: Prepared) -> SearchOutcome:
    """The sampled architectures of a trained network."""
    from recsmith.training.systems.search.network import read_scores, scored_samples

    space = prepared.space
    scores = read_scores(prepared.network.output, space)
    tried = candidates(space, scores, prepared.request.under, prepared.run.seed)
    aucs = scored_samples(prepared.network, tried, most=SCORED)
    kept = front(space, tried, aucs)
    samples = [
        Sample(
            name=f"sample-{number}", picks=picks, price=space.price(picks), network_auc=auc,
            replanned=replanned(space, picks, prepared.priced, **prepared.search),
            settings=settings_of(space, picks, prepared.priced.sizes),
        )
        for number, (picks, auc) in enumerate(kept, 1)
    ]  # fmt: skip
    whole = replanned(space, space.largest, prepared.priced, **prepared.search)
    return SearchOutcome(space=space, expected=expected(space, scores), whole=whole, samples=tuple(samples))


def expected(space: SearchSpace, scores: Floats) -> float:
    """The expected price of the choices. scores: (N, K); their softmax gives the probabilities."""
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    costs = np.zeros_like(shares)
    for n, part in enumerate(space.parts):
        costs[n, : len(part.options)] = [choice.price for choice in part.options]
    return space.fixed + float((shares * costs).sum())


def candidates(space: SearchSpace, scores: Floats, under: float, seed: int) -> list[Picks]:
    """Architectures to score: the best at each price, up to the highest one, and some random draws."""
    best = frontier(space, scores, under)
    chosen = [best[k] for k in np.unique(np.linspace(0, len(best) - 1, CANDIDATES // 2).round().astype(int))]
    return list(dict.fromkeys([*chosen, *drawn(space, scores, under, CANDIDATES - len(chosen), seed)]))


def front(space: SearchSpace, candidates: Sequence[Picks], aucs: Sequence[float]) -> list[tuple[Picks, float]]:
    """Architectures that no cheaper one beats, best first, at most SAMPLES; each has a different price."""
    kept: list[tuple[Picks, float]] = []
    for picks, auc in sorted(zip(candidates, aucs, strict=True), key=lambda each: (space.price(each[0]), -each[1])):
        if not kept or auc > kept[-1][1]:
            kept.append((picks, auc))
    return kept[::-1][:SAMPLES]
