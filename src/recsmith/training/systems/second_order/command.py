"""`recsmith refit`."""

from typing import Any

import click

from recsmith.cli.options import count_option, force_option, format_option, tell_run
from recsmith.cli.printing import say
from recsmith.cli.train import show_made


@click.command(name="refit")
@click.argument("run")
@click.option("--data", required=True, metavar="NEW", help="Data to fit to: a path, or the spec of it.")
@click.option("--layers", type=click.Choice(["last", "dense"]), default="last", show_default=True,
              help="The last linear layer, or all dense layers.")  # fmt: skip
@click.option("--method", type=click.Choice(["dance", "progressive_lbfgs"]), default="dance", show_default=True,
              help="How they are fitted (docs/optimizers.md).")  # fmt: skip
@click.option("--damping", type=float, metavar="X",
              help="Keeps new layers close to the old ones, the closer the larger it is (default: best on a held-out "
                   "fifth of the samples).")  # fmt: skip
@count_option("--samples", default=200_000, help="Samples that are read at most, from the first.")
@click.option("--test", metavar="DATA", help="Data that the old and the new model are scored on.")
@click.option("-o", "--output", metavar="FOLDER", help="Folder of the new model (default: refit in RUN).")
@force_option
@format_option
def refit_command(
    run: str, data: str, test: str | None, output: str | None, force: bool, format_: str, **settings: Any
) -> None:
    """Fit the last layer of the trained model in RUN to NEW data, and export the new model next to the old one.

    Tables and the layers before it do not change. The new layer is held near the old one. The command prints the norm
    of the gradient, and the most by which the loss exceeds the best one (docs/daily.md).

    \b
    recsmith refit runs/first --data clicks/today.parquet
    recsmith refit runs/first --data today.yaml --test tomorrow.yaml --layers dense
    """
    from recsmith.training.systems.second_order.refit import refit
    from recsmith.training.systems.second_order.settings import RefitSettings

    for each in (data, test):
        tell_run(each)
    refitted, scores = refit(
        run, data, settings=RefitSettings(**settings), test=test, output=output, force=force, on_progress=say
    )
    bound = "" if refitted.bound is None else f"; at most {refitted.bound:.2g} above the least"
    losses = f"{refitted.samples:,} samples: log loss {refitted.loss_before:.5f} -> {refitted.loss:.5f}"
    tried = ", ".join(f"{name}: {loss:.5f}" for name, loss in refitted.tried.items())
    curve = [f"log loss of a held-out fifth by damping: {tried}"] if tried else []
    show_made(refitted, scores, [*curve, losses, f"gradient {refitted.norm:.2e}{bound}"], format_)
