"""`recsmith learn`."""

from typing import Any

import click

from recsmith.cli.options import read_time
from recsmith.cli.telling import left, teller

SAY_EVERY_S = 30.0  # where nobody watches


@click.group(name="learn")
def command() -> None:
    """Train what plans are priced by, from measurements."""


@command.command(name="cost")
@click.option("--data", required=True, metavar="FOLDER[,FOLDER]", help="Measurements, or shipped:NAME.")
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@click.option("--variant", type=click.Choice(["convex", "linear", "free"]), default="convex", show_default=True,
              help="Head: convex, linear or free; free gives no bound.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Seed of the split and of the weights.")  # fmt: skip
@click.option("--epochs", type=click.IntRange(min=1), default=250, show_default=True, metavar="N",
              help="Times that training sees every sample.")  # fmt: skip
@click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 10m, at the best so far.")
@click.option("--start", metavar="MODEL", help="Begin with the weights of a model: cpu, or a .safetensors file.")
def cost(
    data: str, output: str, variant: str, seed: int, epochs: int, budget: float | None, start: str | None
) -> None:  # fmt: skip
    """Train a cost model on measured samples; `--cost-model neural:NAME.safetensors` plans by it (docs/learning.md).

    \b
    recsmith learn cost --data measurements/cpu --output cpu.safetensors
    recsmith learn cost --data measurements/here --output here.safetensors --start cpu
    recsmith plan tables.yaml --cluster cpu:8 --cost-model neural:cpu.safetensors
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.errors import UsageError
    from recsmith.learning.cost import learn_cost
    from recsmith.measuring.shipped import locate

    words = {"variant": variant, "seed": seed, "epochs": epochs, "budget_s": budget}
    folders = [locate(word.strip()) for word in data.split(",") if word.strip()]
    if not folders:
        raise UsageError("--data names no folder; give one such as measurements/cpu, or several with commas between")
    card = learn_cost(folders, output, words, teller(_words, SAY_EVERY_S, _is_last), start)
    click.echo("\n".join(_lines(card)))
    click.echo(f"recsmith: note: wrote {output}; plan with --cost-model neural:{output}", err=True)


def _lines(card: Any) -> list[str]:
    off, noise = card.held_out, card.noise
    floor = f"{noise.median:.1%} median, {noise.mean:.1%} mean of {noise.pairs} pairs" if noise.pairs else "unknown"
    return [
        f"device    {card.device} ({card.hardware})",
        f"samples   {card.samples:,}, {card.left_out:,} left out (docs/learning.md says why)",
        f"trained   {card.train:,} groups, {card.epochs} epochs, {card.variant}",
        f"held out  {off.median:.1%} median, {off.mean:.1%} mean error of {off.samples:,} groups; tau {off.tau:.3f}",
        f"parts     {off.forward_median:.1%} forward, {off.backward_median:.1%} backward (medians)",
        f"noise     {floor}: what two samples of one case differ by",
    ]


def _words(epoch: Any) -> str:
    """Of a training's Epoch."""
    seconds = epoch.elapsed_s * (epoch.epochs / epoch.number - 1)
    return f"epoch {epoch.number} of {epoch.epochs}, off by {epoch.error:.1%} (best {epoch.best:.1%}){left(seconds)}"


def _is_last(epoch: Any) -> bool:
    return epoch.number == epoch.epochs
