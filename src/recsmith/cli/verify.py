"""`recsmith verify`."""

import click

from recsmith.cli.options import format_option


@click.command(name="verify")
@click.argument("plan")
@click.option("--torchrec", is_flag=True, help="Run it under TorchRec's DistributedModelParallel, on this CPU.")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Timed steps.")
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Samples per rank and step.")
@format_option
def command(plan: str, torchrec: bool, steps: int, batch_size: int | None, format_: str) -> None:
    """Run PLAN (a file, '-' for stdin) on this machine: step times and memory, measured beside predicted.

    \b
    recsmith verify plan.json --torchrec
    recsmith verify plan.json --torchrec --batch-size 1024 --format json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.errors import UsageError

    if not torchrec:
        raise UsageError("verify needs to know what runs the plan; add --torchrec, the only one so far")
    from recsmith.bridge.verify import verify
    from recsmith.bridge.verify_report import verification_report, verification_to_raw
    from recsmith.files import dump_json
    from recsmith.plans import load_plan

    done = verify(load_plan(plan), steps=steps, batch_size=batch_size)
    if format_ == "json":
        click.echo(dump_json(verification_to_raw(done)), nl=False)
    else:
        from recsmith.reports.text import show

        show(verification_report(done))
