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
    from recsmith.learning.cost import learn_cost

    words = {"variant": variant, "seed": seed, "epochs": epochs, "budget_s": budget}
    card = learn_cost(_folders(data, "--data"), output, words, teller(_words, SAY_EVERY_S, _is_last), start)
    click.echo("\n".join(_lines(card)))
    click.echo(f"recsmith: note: wrote {output}; plan with --cost-model neural:{output}", err=True)


@command.command(name="comm")
@click.option("--data", required=True, metavar="FOLDER[,FOLDER]", help="Measured all-to-alls, or shipped:NAME.")
@click.option("--unseen", metavar="FOLDER[,FOLDER]", help="All-to-alls of other numbers of ranks, only to judge by.")
@click.option("-o", "--output", required=True, metavar="NAME.safetensors", help="File to write; its card beside it.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Seed of the split and of the weights.")  # fmt: skip
@click.option("--epochs", type=click.IntRange(min=1), default=200, show_default=True, metavar="N",
              help="Times that training sees every exchange.")  # fmt: skip
@click.option("--budget", callback=read_time, metavar="TIME", help="Stop after a time such as 5m, at the best so far.")
def comm(data: str, unseen: str | None, output: str, seed: int, epochs: int, budget: float | None) -> None:
    """Train one model of all-to-alls for any number of ranks: bytes and starts to the seconds of each rank.

    \b
    recsmith learn comm --data measurements/comm-2 --output comm.safetensors
    recsmith learn comm --data sim-4,sim-8,sim-16 --unseen sim-12,sim-32 --output comm-sim.safetensors
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.learning.comm import learn_comm

    words = {"seed": seed, "epochs": epochs, "budget_s": budget}
    judging = _folders(unseen, "--unseen") if unseen is not None else []
    card = learn_comm(_folders(data, "--data"), output, words, judging, teller(_words, SAY_EVERY_S, _is_last))
    click.echo("\n".join(_comm_lines(card)))
    click.echo(f"recsmith: note: wrote {output}; recsmith.costs.neural_comm.files.load_comm_model reads it", err=True)


def _folders(words: str, option: str) -> list[Any]:
    """Folders of measurements, with commas between."""
    from recsmith.errors import UsageError
    from recsmith.measuring.shipped import locate

    folders = [locate(word.strip()) for word in words.split(",") if word.strip()]
    if not folders:
        raise UsageError(f"{option} names no folder; give one such as measurements/cpu, or several with commas between")
    return folders


def _comm_lines(card: Any) -> list[str]:
    noise = card.noise
    floor = f"{noise.median:.1%} median, {noise.mean:.1%} mean of {noise.pairs} pairs" if noise.pairs else "unknown"
    return [
        f"device    {card.device} ({card.hardware}, {card.backend})",
        f"samples   {card.exchanges:,}, {card.left_out:,} left out (docs/learning.md says why)",
        f"trained   {card.train:,} exchanges of {', '.join(map(str, card.ranks))} ranks, {card.epochs} epochs",
        f"noise     {floor}: what two measurements of a rank differ by",
        "",
        "ranks  exchanges  median    mean  of alpha-beta and the wait",
        *(_comm_line(each) for each in card.held_out),
    ]


def _comm_line(off: Any) -> str:
    errors = f" {off.median:>7.1%} {off.mean:>7.1%}  {off.alpha_beta_median:.1%} median, {off.alpha_beta_mean:.1%} mean"
    return f"{off.ranks:>5}{off.exchanges:>11,}{errors}{'' if off.trained else '; never trained on'}"


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
