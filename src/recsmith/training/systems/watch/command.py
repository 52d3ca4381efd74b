"""The command `recsmith watch`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsmith.cli.options import count_option, force_option, format_option
from recsmith.cli.printing import is_watched, note, print_as

if TYPE_CHECKING:
    from recsmith.streaming.csv_series import NamedSeries

LOOK_S = 2.0  # seconds between two refreshes of --follow
OF_RUNS = ("follow", "until", "ids", "workload", "periods", "force")
OF_SERIES = ("columns", "detector", "settings", "threshold")


@click.command(name="watch")
@click.argument("target")
@click.option("--follow", is_flag=True, help="Look again every 2 s, until the run ends or Ctrl-C.")
@count_option("--until", least=0, metavar="STEP", help="Show a run as it was after this step.")
@click.option("--ids", is_flag=True, help="Show statistics of the ids of a run's features, from its sketches.")
@click.option("--workload", metavar="FILE", help="Write the workload that a run's ids make now, for planners.")
@count_option("--periods", default=1, help="Of sketches that --workload and --ids take together, the newest.")
@click.option("--column", "columns", multiple=True, metavar="NAME",
              help="Of a CSV file; may be given more than once (default: all but steps, times and text).")  # fmt: skip
@click.option("--detector", default="ensemble", show_default=True, metavar="NAME",
              help="Of a CSV file: ensemble, tail, ewma, median_mad, seasonal, adwin, or module:Class.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A setting of the detector, such as period=288 of seasonal.")  # fmt: skip
@click.option("--threshold", type=float, metavar="X", help="Of scores, above which a value alarms.")
@force_option
@format_option
@click.pass_context
def watch_command(context: click.Context, target: str, format_: str, **options: Any) -> None:
    """Show what went wrong in a run, or in a series.

    TARGET is the output folder of a training job, running or finished, or a CSV file with a header and one series per
    column. A job that trains with `watch: auto` reports what breaks; for any other job, the lines of its log are judged
    here. For a CSV file, each alarm says what it looks like, where it is, and what was usual; columns of steps and
    times are used only to say where.

    \b
    recsmith watch runs/first --follow
    recsmith watch runs/first --until 20000
    recsmith watch runs/first --ids
    recsmith watch runs/first --workload now.json
    recsmith watch series.csv
    recsmith watch series.csv --column latency --detector seasonal --set period=288
    """
    is_run = Path(target).is_dir()
    _check_options(context, target, OF_SERIES if is_run else OF_RUNS, "series" if is_run else "runs")
    if not is_run:
        _show_series(
            target, options["columns"], options["detector"], options["settings"], options["threshold"], format_
        )
    elif options["ids"]:
        _show_ids(target, options["periods"], format_)
    elif options["workload"] is not None:
        _write_workload(target, options["workload"], options["periods"], force=options["force"])
    else:
        _show_run(target, options["until"], format_, follow=options["follow"])


def _check_options(context: click.Context, target: str, others: tuple[str, ...], of: str) -> None:
    """Raise UsageError for options that belong to the other kind of target."""
    from click.core import ParameterSource

    from recsmith.errors import UsageError

    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE
        if given and option.name in others:
            raise UsageError(f"{option.opts[0]} is of {of}, and '{target}' is none; leave it out")


def _show_run(folder: str, until: int | None, format_: str, *, follow: bool) -> None:
    from recsmith.reports.watch import run_raw, run_report
    from recsmith.training.systems.watch.alarm_log import read_watched

    while True:
        run = read_watched(folder, until)
        if follow and is_watched(sys.stdout):
            click.clear()
        print_as(format_, lambda: run_report(run), lambda: run_raw(run))  # noqa: B023 (called at once)
        if not follow or run.ended or until is not None:
            return
        time.sleep(LOOK_S)


def _show_series(
    source: str, columns: tuple[str, ...], name: str, settings: tuple[str, ...], threshold: float | None, format_: str
) -> None:
    from recsmith.reports.watch import series_raw, series_report
    from recsmith.streaming.csv_series import judged_series, read_series
    from recsmith.streaming.detectors import detector_spec
    from recsmith.streaming.series import AlarmingSeries
    from recsmith.streaming.series_hints import hints_of, other_period_note

    detector = detector_spec(name, settings)
    judge = AlarmingSeries(detector, threshold=threshold)  # refuses what it does not know, whatever the series are
    file = read_series(source, columns)
    period = _period(file.series, detector) if name == "seasonal" else None
    judged = list(zip(file.series, judged_series(file.series, detector, threshold), strict=True))
    learned = (
        f"by {name}: {judge.detector.warm:,} values teach it what is usual; scores above {judge.threshold:g} alarm"
    )
    print_as(format_, lambda: series_report(file, judged, learned), lambda: series_raw(file, judged))
    for each, alarms in judged if name == "ensemble" and file.mixed is None else ():
        for said in () if isinstance(alarms, str) else hints_of(each, alarms, plain=detector == "ensemble"):
            note(said)
    if period is not None:
        for each in file.series:
            if (said := other_period_note(each.name, each.values, period)) is not None:
                note(said)


def _period(series: "Sequence[NamedSeries]", detector: object) -> int:
    """The period for detector seasonal. Raises UsageError if none is given, with periods found in the series."""
    from recsmith.errors import UsageError
    from recsmith.streaming.series_hints import season_of_values

    given = detector.get("period") if isinstance(detector, dict) else None
    if isinstance(given, int):
        return given
    found = {each.name: season for each in series if (season := season_of_values(each.values)) is not None}
    if not found:
        raise UsageError("detector seasonal judges by a period, and no column repeats; leave --detector seasonal out")
    repeat = "; ".join(f"'{name}' repeats every {season.period:,} values" for name, season in found.items())
    name, season = next(iter(found.items()))
    raise UsageError(
        f"detector seasonal judges by a period: {repeat}; add --column {name} --set period={season.period}"
    )


def _show_ids(folder: str, periods: int, format_: str) -> None:
    from recsmith.reports.watch import ids_raw, ids_report
    from recsmith.streaming.sketch_files import read_sketches

    step, now = read_sketches(Path(folder), periods)
    _, before = read_sketches(Path(folder), periods, before=periods)
    print_as(format_, lambda: ids_report(folder, step, now, before), lambda: ids_raw(step, now, before))


def _write_workload(folder: str, target: str, periods: int, *, force: bool) -> None:
    from recsmith.files import check_target
    from recsmith.plans import load_plan
    from recsmith.streaming.live_workload import live_workload
    from recsmith.streaming.sketch_files import read_sketches
    from recsmith.workloads import WORKLOAD_FILE, save_workload

    plan = str(Path(folder) / "plan.json")
    check_target(target, inputs=[plan], kind=WORKLOAD_FILE, force=force)
    step, sketches = read_sketches(Path(folder), periods)
    save_workload(live_workload(load_plan(plan).workload, sketches, source=folder), target)
    note(f"wrote {target}: the tables as ids read them in the steps up to {step:,}")
