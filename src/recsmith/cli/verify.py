"""`recsmith verify`."""

from typing import Any

import click

from recsmith.cli.options import format_option
from recsmith.cli.telling import left, teller

SAY_EVERY_S = 30.0  # where nobody watches
STEPS = 5
OF_TORCHREC, OF_KERNELS = ("steps", "batch_size"), ("hardware", "cost_model", "visits", "seed")


@click.command(name="verify")
@click.argument("plans", metavar="PLAN...", nargs=-1, required=True)
@click.option("--hardware", metavar="H", help="Measure kernels on cpu, cuda[:<gpu>] or simulated:<gpu> (default: cpu).")
@click.option("--cost-model", metavar="M", help="Cost model that predicts (default: the plans' own).")
@click.option("--visits", type=click.IntRange(min=1), metavar="N", help="How often each rank is measured (default: 7).")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of ids and of intervals (default: 0).")
@click.option("--torchrec", is_flag=True, help="Run one plan under TorchRec's DistributedModelParallel, on this CPU.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Timed steps, with --torchrec (default: 5).")
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Samples per rank, with --torchrec.")
@format_option
def command(plans: tuple[str, ...], torchrec: bool, format_: str, **words: Any) -> None:
    """Measure each PLAN (a file, '-' for stdin) on this machine, beside what was predicted.

    Kernels of every rank are measured with FBGEMM, rank after rank, visit after visit; of several plans it says which
    are told apart (docs/verification.md). With --torchrec one plan trains in a real TorchRec job.

    \b
    recsmith verify plan.json
    recsmith verify best.json running.json --hardware cpu --visits 9
    recsmith verify plan.json --torchrec --batch-size 1024 --format json
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.errors import UsageError

    odd = [name for name in (OF_KERNELS if torchrec else OF_TORCHREC) if words[name] is not None]
    if odd:
        which = "is not a word of --torchrec" if torchrec else "goes with --torchrec"
        raise UsageError(f"--{odd[0].replace('_', '-')} {which}; leave one of the two out")
    if torchrec and len(plans) > 1:
        raise UsageError(f"--torchrec trains one plan at a time, and there are {len(plans)}; name one")
    if torchrec:
        _train(*plans, steps=words["steps"] or STEPS, batch_size=words["batch_size"], format_=format_)
    else:
        _measure(plans, format_, {name: words[name] for name in OF_KERNELS if words[name] is not None})


def _train(plan: str, *, steps: int, batch_size: int | None, format_: str) -> None:
    from recsmith.files import dump_json
    from recsmith.plans import load_plan
    from recsmith.reports.verified_jobs import verification_report, verification_to_raw
    from recsmith.verifying.jobs.verify import verify

    done = verify(load_plan(plan), steps=steps, batch_size=batch_size)
    if format_ == "json":
        click.echo(dump_json(verification_to_raw(done)), nl=False)
    else:
        from recsmith.reports.text import show

        show(verification_report(done))


def _measure(plans: tuple[str, ...], format_: str, words: dict[str, Any]) -> None:
    from recsmith.files import dump_json
    from recsmith.plans import load_plan
    from recsmith.reports.verified_kernels import verified_lines, verified_to_raw
    from recsmith.verifying.kernels.verify import verify_plans

    named = [(name, load_plan(name)) for name in plans]
    done = verify_plans(named, **words, on_progress=teller(_words, SAY_EVERY_S))
    if not done.complete:
        click.echo(f"recsmith: note: interrupted; this is what {done.visits} visits say", err=True)
    if format_ == "json":
        click.echo(dump_json(verified_to_raw(done)), nl=False)
    else:
        click.echo("\n".join(verified_lines(done)))


def _words(progress: Any) -> str:
    """Of a StepProgress."""
    seconds = progress.elapsed_s * (progress.total / progress.done - 1)
    return f"visit {progress.visit} of {progress.visits}, {progress.done} of {progress.total} measured{left(seconds)}"
