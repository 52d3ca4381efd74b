"""`recsmith fleet`: many jobs on several pools of devices."""

import time
from typing import Any

import click

from recsmith.cli.options import format_option, read_time
from recsmith.cli.printing import end_line, is_watched, print_as, progress_printer


@click.command(name="fleet")
@click.argument("jobs")
@click.option("--pools", required=True, metavar="FILE", help="Pools of devices, with hosts and prices.")
@click.option("--planner", metavar="P", help="Planner for each job on each pool (default: cost_greedy).")
@click.option("--cost-model", metavar="M", help="Cost model (default: best).")
@click.option("--time-limit", callback=read_time, metavar="TIME", help="Limit of the search, after all plans are made.")
@format_option
def fleet_command(jobs: str, pools: str, format_: str, **options: Any) -> None:
    """Decide on which pool and how many hosts each job of JOBS trains, at the lowest total cost.

    \b
    recsmith fleet jobs.yaml --pools pools.yaml
    """
    from recsmith.analyses.fleet import fleet
    from recsmith.reports.fleets import fleet_lines, fleet_to_raw

    named = {"planner": "planner", "model": "cost_model", "time_limit_s": "time_limit"}
    given = {name: options[option] for name, option in named.items() if options[option] is not None}
    found = fleet(jobs, pools, on_way=_printer(), **given)
    end_line()
    print_as(format_, lambda: fleet_lines(found), lambda: fleet_to_raw(found))


def _printer() -> Any:
    """A callback that shows on a terminal how many ways (job, pool and hosts) were planned; None without a terminal."""
    if not is_watched():
        return None
    begun, seen = time.monotonic(), [0]
    say = progress_printer(
        lambda way: f"{seen[0]} ways, {time.monotonic() - begun:.0f} s: {way.job} on {way.pool}", 0.5
    )

    def on_way(way: Any) -> None:
        seen[0] += 1
        say(way)

    return on_way
