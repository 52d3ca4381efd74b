"""Trains a cost model on folders of samples and writes it: read, split, train, judge, write.

The card says where the model is right and where it is not, by held-out errors of kinds of groups. A group has the kind
of its heaviest table, the one with the largest product of ids and columns: its rows, ids per bag, and columns.

Legend: N groups, P pieces.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural.files import (
    CELLS,
    FROM_ANALYTIC,
    Beside,
    Card,
    Range,
    Variant,
    Weights,
    find_model,
    load_model,
    load_tensors,
    save_model,
    weights_of,
)
from recsmith.costs.neural.inputs import DATA_TYPES, OPTIMIZERS, Region, cells_of, figures_of
from recsmith.errors import UsageError
from recsmith.learning.costs import Groups, Origin, noise_floor, read_groups
from recsmith.learning.costs.baselines import beside, cluster_of, formula_seconds, with_corrected_work
from recsmith.learning.preparation import check_output, held_out, import_training, noise_floor_of, split

SCALED_BY = 300  # groups, at 10 ms each, with which formulas are compared; not tuned further
FORMULAS = ("analytic", "torchrec")  # cost models without training


def learn_cost(
    folders: Sequence[Path],
    output: str,
    fields: dict[str, Any],
    on_epoch: Callable[[Any], None] | None = None,
    start: str | None = None,
) -> Card:
    """Train a cost model on the samples of folders and write it; fields: of costs/training.CostRecipe.

    start: the model with whose weights training begins, by name or file; that of a similar device helps. Ctrl-C ends
    training as a budget does; before the first epoch is done, nothing is written.

    Raises:
        UsageError: there are too few samples, or they are of several devices; the output is no path of a .safetensors
            file; the start model is of another variant.
        MissingExtra: PyTorch is missing, or pyarrow if there are parquet parts.
        RecSmithError: training diverged, or the output cannot be written; an existing file is unchanged.
    """
    check_output(output)
    if start:
        _start_fields(find_model(start), fields.get("variant"))  # refused before samples are read
    groups, left_out, origin = read_groups(folders)
    return learn_from(groups, origin, output, fields, on_epoch, start, left_out=left_out)


def learn_from(
    groups: Groups,
    origin: Origin,
    output: str,
    fields: dict[str, Any],
    on_epoch: Callable[[Any], None] | None = None,
    start: str | None = None,
    *,
    left_out: int = 0,
) -> Card:
    """As `learn_cost`, from groups that were read. left_out: number of samples that were not usable, for the card."""
    if start:
        fields = fields | _start_fields(find_model(start), fields.get("variant"))
    fields = fields | {"variant": fields.get("variant") or "convex"}
    training = import_training("recsmith.learning.costs.training")
    recipe = training.CostRecipe(**fields)
    digest, groups = groups.digest, _with_figures(groups, origin, recipe.variant)
    parts = [groups.take(part) for part in split(groups.case, recipe.seed)]
    learning, choosing, judging = parts
    formulas = formulas_beside(learning, origin)
    network, epochs = training.train(recipe, learning, choosing, on_epoch)
    tensors = network.tensors() | {CELLS: cells_of(figures(learning))}
    predicted = predict(weights_of(tensors, recipe.variant, output), judging)
    card = Card(
        hardware=origin.hardware, device=origin.device, versions=origin.versions, variant=recipe.variant,
        seed=recipe.seed, data=digest, samples=len(groups), left_out=left_out, train=len(learning),
        validation=len(choosing), epochs=epochs, noise=noise_floor_of(noise_floor(groups)), ranges=ranges_of(learning),
        held_out=held_out(predicted, judging.seconds),
        optimizers=tuple(name for i, name in enumerate(OPTIMIZERS) if i in groups.optimizer),
        data_types=tuple(name for i, name in enumerate(DATA_TYPES) if i in groups.data_type),
        analytic_factor=formulas["analytic"].factor if formulas else 1.0, start=start, beside=formulas,
        regions=regions_of(names_of(judging), predicted.sum(axis=1) / judging.total - 1),
    )  # fmt: skip
    save_model(output, tensors, card)
    load_model(Path(output))
    return card


def _start_fields(path: Path, variant: Variant | None) -> dict[str, Any]:
    """The weights and the variant of a file, which must be of the given variant if there is one."""
    tensors, card = load_tensors(path)
    if variant and card.variant != variant:
        raise UsageError(f"'{path}' is {card.variant}, the model to train is {variant}; add --variant {card.variant}")
    weights = {name: value for name, value in tensors.items() if name != CELLS}
    return {"start": weights, "variant": card.variant}


def _with_figures(groups: Groups, origin: Origin, variant: Variant) -> Groups:
    """The groups with the figures of work that a variant uses."""
    if variant not in FROM_ANALYTIC:
        return groups
    cluster = cluster_of(origin)
    if cluster is None:
        raise UsageError(
            f"variant {variant} begins with figures of the catalogue, which has no {origin.device}; "
            "take --variant convex"
        )
    return with_corrected_work(groups, cluster)


def predict(weights: Weights, groups: Groups) -> Floats:
    """Seconds (N, 2) of groups, forward and backward, computed in NumPy as when plans are priced."""
    terms = np.hstack([np.ones((len(groups.work), 1)), weights.terms(groups.work, groups.inputs)])
    return weights.head.seconds(groups.summed(terms)).T + weights.head.launch


def ranges_of(groups: Groups) -> dict[str, Range]:
    """The least and the most of each figure; a plan beyond them is reported as beyond the trained range."""
    inputs = {
        "ids": groups.ids, "bags": groups.bags, "unique rows": groups.unique, "rows": groups.rows,
        "columns": groups.dim, "device ids": groups.summed(groups.ids), "device outputs": groups.outputs,
        "device tables": groups.tables.astype(np.float64), "device seconds": groups.total,
    }  # fmt: skip
    return {name: Range(least=float(values.min()), most=float(values.max())) for name, values in inputs.items()}


def formulas_beside(groups: Groups, origin: Origin) -> dict[str, Beside]:
    """How FORMULAS compare on this device, for whole tables; empty if the catalogue lacks the device."""
    cluster, groups = cluster_of(origin), groups.take(groups.blocks == 1)
    if cluster is None or not len(groups):
        return {}
    some = groups.take(np.arange(len(groups)) % max(1, len(groups) // SCALED_BY) == 0)
    return {name: beside(some.seconds, formula_seconds(some, cluster, name)) for name in FORMULAS}


EDGES: dict[str, tuple[int, ...]] = {
    "rows": (10_000, 1_000_000),
    "ids a bag": (10, 100),
    "columns": (33,),
}  # limits between kinds of tables
LEAST_GROUPS = 5  # fewest groups of a region: fewer say nothing about it


def region_name(rows: float, pooling: float, columns: float) -> str:
    """The kind of a table, in words."""
    return ", ".join(_words(what, value) for what, value in zip(EDGES, (rows, pooling, columns), strict=True))


def regions_of(names: Iterable[str], off: Floats) -> tuple[Region, ...]:
    """The regions of groups by their names (N,) and predicted / measured - 1 (N,), the worst first."""
    where = np.array(list(names))
    found = [(name, off[where == name]) for name in sorted(set(where.tolist()))]
    regions = [
        Region(name=name, samples=len(here), mean=float(np.abs(here).mean()), bias=float(here.mean()))
        for name, here in found
        if len(here) >= LEAST_GROUPS
    ]
    return tuple(sorted(regions, key=lambda region: -region.mean))


def names_of(groups: Groups) -> Iterator[str]:
    """The name of the region of each group (N,)."""
    heavy = _heaviest(groups)
    pooling = groups.ids / np.maximum(groups.bags, 1)
    for figures in zip(groups.rows[heavy], pooling[heavy], groups.dim[heavy], strict=True):
        yield region_name(*map(float, figures))


def figures(groups: Groups) -> Floats:
    """The figures (P, 4) of all pieces by which a table's distance from the training data is judged."""
    return figures_of(groups.rows, groups.ids, groups.bags, groups.dim, groups.unique)


def _heaviest(groups: Groups) -> Ints:
    """The piece (N,) of each group with the largest product of ids and columns."""
    order: Ints = np.lexsort((groups.ids * groups.dim, groups.owner))
    return order[groups.start[1:] - 1]


def _words(what: str, value: float) -> str:
    edges = EDGES[what]
    place = bisect_right(edges, value)
    if place == 0:
        return f"below {edges[0]:,} {what}"
    if place == len(edges):
        return f"{edges[-1]:,} {what} and more"
    return f"{edges[place - 1]:,} to {edges[place]:,} {what}"
