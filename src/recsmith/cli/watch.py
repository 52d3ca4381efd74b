"""`recsmith watch`."""

import sys
import time
from pathlib import Path

import click

from recsmith.cli.options import force_option, format_option
from recsmith.cli.printing import is_watched, note, print_as

LOOK_S = 2.0  # between two looks of --follow


@click.command(name="watch")
@click.argument("target")
@click.option("--follow", is_flag=True, help="Look again every 2 s, until the run ends or Ctrl-C.")
@click.option("--until", type=click.IntRange(min=0), metavar="STEP", help="Show a run as it was after this step.")
@click.option("--workload", "workload_file", metavar="FILE",
              help="Write the workload that a run's ids make now, for planners.")  # fmt: skip
@click.option("--periods", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Of sketches that --workload takes together, the newest.")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Of a CSV file; may be given several times (default: all that hold numbers alone).")  # fmt: skip
@click.option("--detector", default="ensemble", show_default=True, metavar="NAME",
              help="Of a CSV file: ensemble, tail, ewma, median_mad, seasonal, adwin, or module:Class.")  # fmt: skip
@click.option("--threshold", type=float, metavar="X", help="Of scores, above which a value alarms.")
@force_option
@format_option
def watch_command(
    target: str, follow: bool, until: int | None, workload_file: str | None, periods: int, columns: tuple[str, ...],
    detector: str, threshold: float | None, force: bool, format_: str,
) -> None:  # fmt: skip
    """Show what went wrong in a run, or in a series.

    TARGET is the output folder of a training job, live or over, or a CSV file with a header and a column a series. A
    job that trains with `watch: auto` tells what breaks; of another one the lines of its log are judged here.

    \b
    recsmith watch runs/first --follow
    recsmith watch runs/first --until 20000
    recsmith watch runs/first --workload now.json
    recsmith watch series.csv --column latency --detector seasonal
    """
    if not Path(target).is_dir():
        _show_series(target, columns, detector, threshold, format_)
    elif workload_file is not None:
        _write_workload(target, workload_file, periods, force=force)
    else:
        _show_run(target, until, format_, follow=follow)


def _show_run(folder: str, until: int | None, format_: str, *, follow: bool) -> None:
    from recsmith.reports.watch import run_raw, run_report
    from recsmith.streaming.run_log import read_watched

    while True:
        run = read_watched(folder, until)
        if follow and is_watched(sys.stdout):
            click.clear()
        print_as(format_, lambda: run_report(run), lambda: run_raw(run))  # noqa: B023 (called at once)
        if not follow or run.ended:
            return
        time.sleep(LOOK_S)


def _show_series(source: str, columns: tuple[str, ...], detector: str, threshold: float | None, format_: str) -> None:
    from recsmith.reports.watch import series_raw, series_report
    from recsmith.streaming.csv_series import read_series
    from recsmith.streaming.series import find_alarms

    found = [
        (each, "constant, so nothing in it is unusual" if each.values and min(each.values) == max(each.values)
         else find_alarms(each.values, detector, threshold=threshold))
        for each in read_series(source, columns)
    ]  # fmt: skip
    print_as(format_, lambda: series_report(found), lambda: series_raw(found))


def _write_workload(folder: str, target: str, periods: int, *, force: bool) -> None:
    """The workload of the newest sketches."""
    from recsmith.files import check_target
    from recsmith.plans import load_plan
    from recsmith.streaming.live_workload import live_workload
    from recsmith.training.watchers.sketch_files import read_sketches
    from recsmith.workloads import WORKLOAD_FILE, save_workload

    check_target(target, inputs=[str(Path(folder) / "plan.json")], kind=WORKLOAD_FILE, force=force)
    step, sketches = read_sketches(Path(folder), periods)
    save_workload(live_workload(load_plan(Path(folder) / "plan.json").workload, sketches, source=folder), target)
    note(f"wrote {target}: the tables as ids read them in the steps up to {step:,}")
