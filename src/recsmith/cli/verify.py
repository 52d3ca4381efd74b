"""`recsmith verify`."""

import sys
from collections.abc import Callable
from typing import Any

import click

from recsmith.cli.options import MOST_VISITS, count_option, format_option
from recsmith.cli.printing import end_line, is_watched, note, print_as, progress_printer
from recsmith.reports.progress import verifying_words
from recsmith.units import counted

LOG_EVERY_S = 30.0  # seconds between two progress lines if stderr is not a terminal
OF_JOBS = ("steps", "batch_size")  # options that need --torchrec
OF_KERNELS = ("hardware", "cost_model", "visits", "seed")  # options that exclude --torchrec


@click.command(name="verify")
@click.argument("plans", metavar="PLAN...", nargs=-1, required=True)
@click.option("--hardware", metavar="H", help="Measure kernels on cpu, cuda[:<gpu>] or simulated:<gpu> (default: cpu).")
@click.option("--cost-model", metavar="M", help="Cost model that predicts (default: the plans' own).")
@count_option("--visits", most=MOST_VISITS, help="How often each rank is measured (default: 7).")
@count_option("--seed", least=0, help="Seed of ids and of intervals (default: 0).")
@click.option("--torchrec", is_flag=True, help="Run one plan under TorchRec's DistributedModelParallel, on this CPU.")
@count_option("--steps", help="Timed steps, with --torchrec (default: 5).")
@count_option("--batch-size", help="Samples per rank, with --torchrec.")
@format_option
def verify_command(plans: tuple[str, ...], torchrec: bool, format_: str, **options: Any) -> None:
    """Measure each PLAN (a file, '-' for stdin) on this machine, and compare with the prediction.

    Kernels of every rank are measured with FBGEMM, rank after rank, visit after visit; of several plans it says which
    differ by more than noise (docs/verification.md). With --torchrec one plan trains in a real TorchRec job.

    \b
    recsmith verify plan.json
    recsmith verify best.json running.json --hardware cpu --visits 9
    recsmith verify plan.json --torchrec --batch-size 1024 --format json
    """
    from recsmith.errors import UsageError

    odd = [name for name in (OF_KERNELS if torchrec else OF_JOBS) if options[name] is not None]
    if odd:
        which = "is not a word of --torchrec" if torchrec else "goes with --torchrec"
        raise UsageError(f"--{odd[0].replace('_', '-')} {which}; leave one of the two out")
    if torchrec and len(plans) > 1:
        raise UsageError(f"--torchrec trains one plan at a time, and there are {len(plans)}; name one")
    given = {name: value for name, value in options.items() if value is not None}
    if torchrec:
        _verify_job(*plans, format_=format_, options=given)
    else:
        _verify_kernels(plans, format_, given)


def _verify_job(plan: str, *, format_: str, options: dict[str, Any]) -> None:
    from recsmith.plans import load_plan
    from recsmith.reports.verifications import job_verification_report, job_verification_to_raw
    from recsmith.verifying.jobs import verify_job

    shown = format_ != "json" and is_watched(sys.stdout)
    done = verify_job(load_plan(plan), **options, on_progress=_job_printer() if shown else None)
    if shown:
        end_line()
    print_as(format_, lambda: job_verification_report(done), lambda: job_verification_to_raw(done))


def _job_printer() -> Callable[[Any], None]:
    """A callback that prints each stage of a job at once, and its steps at most every half second."""
    from recsmith.reports.progress import job_words

    return progress_printer(job_words, LOG_EVERY_S, lambda progress: progress.step <= 1)


def _verify_kernels(plans: tuple[str, ...], format_: str, options: dict[str, Any]) -> None:
    from recsmith.plans import load_plan
    from recsmith.reports.verifications import kernel_verification_lines, kernel_verification_to_raw
    from recsmith.verifying.kernels import verify_kernels

    named = [(name, load_plan(name)) for name in plans]
    done = verify_kernels(named, **options, on_progress=progress_printer(verifying_words, LOG_EVERY_S))
    end_line()
    if not done.complete:
        note(f"interrupted; this is what {counted(done.visits, 'visit')} say{'s' if done.visits == 1 else ''}")
    print_as(format_, lambda: kernel_verification_lines(done), lambda: kernel_verification_to_raw(done))
