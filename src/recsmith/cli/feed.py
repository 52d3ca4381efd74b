"""`recsmith feed`."""

import time

import click

from recsmith.cli.options import format_option
from recsmith.cli.progress import is_watched

WATCH_S = 2.0  # between two looks of --watch: as often as ranks write


@click.group(name="feed")
def command() -> None:
    """Look at the feed of a training job: the workers that read, transform and batch what its ranks train on."""


@command.command(name="status")
@click.argument("run")
@click.option("--watch", is_flag=True, default=False, help="Look again every 2 s, until the feed ends or Ctrl-C.")
@format_option
def status(run: str, watch: bool, format_: str) -> None:
    """Show how the feed of RUN does, the folder that a training job writes to: throughput, waiting, and each worker.

    Ranks tell every 2 s (feed/rank-R.json in the folder). `lag` is the time since a worker, while it makes a window,
    last brought a part of it. With --watch, `--format json` prints one line a look.

    \b
    recsmith feed status runs/first
    recsmith feed status runs/first --watch
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    try:
        while not _show(run, format_, watch=watch) and watch:
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        if not watch:
            raise


def _show(run: str, format_: str, *, watch: bool) -> bool:
    """Print one look; whether nothing more is to come."""
    import json
    import sys
    from pathlib import Path

    from recsmith.feeding.status import read_statuses
    from recsmith.files import dump_json
    from recsmith.reports.feeds import feed_report, feed_to_raw
    from recsmith.reports.layout import show

    statuses, now = read_statuses(Path(run)), time.time()
    if format_ == "json":
        raw = feed_to_raw(statuses, now)
        click.echo(json.dumps(raw) if watch else dump_json(raw).rstrip("\n"))
    else:
        if watch and is_watched(sys.stdout):
            click.clear()
        show(feed_report(run, statuses, now))
    return all(each.ended for each in statuses)
