"""`recsmith train`."""

import os
from typing import Any

import click

from recsmith.cli.options import format_option
from recsmith.cli.progress import say


@click.command(name="train")
@click.argument("run")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value of the run, such as data.batch_size=512; may be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Show plan, memory, predicted step and files, and train nothing.")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Start ranks that failed again, from the newest checkpoint.",
)
@click.option("--capture", metavar="FOLDER", help="Capture some steps for `recsmith predict`; --set capture=FOLDER.")
@format_option
def command(
    run: str, settings: tuple[str, ...], dry_run: bool, max_restarts: int, capture: str | None, format_: str
) -> None:
    """Train the model of RUN (a YAML or JSON file, '-' for stdin) on TorchRec.

    Started plainly it uses this machine: a process for each GPU, or the run's `ranks` on CPU. Started by torchrun, or
    by srun, every process is a rank. A run that was ended goes on from its newest checkpoint (docs/train.md).

    \b
    recsmith train run.yaml
    recsmith train run.yaml --set data.batch_size=512 --set optimizers.dense.learning_rate=0.01
    recsmith train run.yaml --dry-run
    torchrun --nproc-per-node 8 -m recsmith train run.yaml
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    if capture is not None:
        settings = (*settings, f"capture={capture}")
    if dry_run:
        from recsmith.training.dry_run import dry_run as show

        for line in show(run, settings):
            click.echo(line)
        return
    from recsmith.training.launching import train
    from recsmith.training.progress import progress_words

    result = train(run, settings=settings, max_restarts=max_restarts, on_progress=lambda w: say(progress_words(w)))
    if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
        _show(result, format_)
    if "RANK" in os.environ:
        from recsmith.jobs.worker import leave

        leave()  # a rank of a launcher's job: gloo's own teardown aborts now and then


def _show(result: dict[str, Any], format_: str) -> None:
    from recsmith.files import dump_json

    if format_ == "json":
        click.echo(dump_json(result), nl=False)
        return
    state = "complete" if result["complete"] else "ended by a signal, and goes on from here"
    click.echo(f"{result['step']:,} steps, {state}")
    if result.get("test"):
        click.echo("test: " + ", ".join(f"{name} {value:,.6g}" for name, value in result["test"].items()))
