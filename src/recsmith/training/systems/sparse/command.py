"""The command `recsmith sparse`."""

from typing import Any

import click

from recsmith.cli.options import count_option, force_option, format_option, tell_run
from recsmith.cli.printing import say
from recsmith.cli.train import show_made


@click.command(name="sparse")
@click.argument("run")
@click.option("--share", type=float, default=0.8, show_default=True, metavar="X",
              help="Share of the weights of linear layers that become zero.")  # fmt: skip
@click.option("--data", metavar="NEW", help="Data to choose and tune weights by (default: what RUN was trained on).")
@count_option("--steps", default=200, least=0, help="Steps that fine-tune the remaining weights.")
@count_option("--masks", default=100, least=0,
              help="Steps in which a mask learns which weights go, at most; 0 learns none.")  # fmt: skip
@click.option("--per-layer", is_flag=True, default=False, help="The same share of each layer, to compare.")
@count_option("--samples", default=200_000, help="Samples that are read at most, from the first.")
@click.option("--test", metavar="DATA", help="Data that the whole and the sparse model are scored on.")
@click.option("-o", "--output", metavar="FOLDER", help="Folder of the copy (default: sparse in RUN).")
@force_option
@format_option
def sparse_command(
    run: str, data: str | None, test: str | None, output: str | None, force: bool, format_: str, **settings: Any
) -> None:
    """Make a sparse copy of the model that a run left in RUN, and export it next to the whole model.

    One threshold over all linear layers decides which weights become zero; the remaining weights are tuned. Tables are
    not changed. The copy is loaded and served like any model (docs/narrow.md).

    \b
    recsmith sparse runs/first --share 0.8
    recsmith sparse runs/first --share 0.9 --data clicks/today.parquet --test clicks/tomorrow.parquet
    """
    from recsmith.training.systems.sparse.settings import SparsitySettings
    from recsmith.training.systems.sparse.sparsify import sparsify

    for each in (data, test):
        tell_run(each)
    made, scores = sparsify(
        run, data, settings=SparsitySettings(**settings), test=test, output=output, force=force, on_progress=say
    )
    layers = [f"{name}: {share:.1%} zeros" for name, share in made.layers.items()]
    losses = f"log loss {made.loss_full:.5f} -> {made.loss:.5f} on the samples that it was made with"
    unseen = "" if test else "; --test scores both on data that they have not seen"
    bring = "the file is as large and a step no shorter, for which kernels or files of sparse weights are needed"
    zeros = f"{made.zeros:,} of {made.weights:,} weights are zero, by themselves {bring}: {losses}{unseen}"
    show_made(made, scores, [*layers, zeros], format_)
