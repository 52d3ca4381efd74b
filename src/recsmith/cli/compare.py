"""Commands that plan one workload several times: `recsmith compare` and `recsmith sweep`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from recsmith._plugins import PLANNERS
from recsmith.cli.live import live, running
from recsmith.cli.options import (
    GroupedCommand,
    PluginOption,
    count_option,
    force_option,
    format_option,
    inputs_of,
    limit_options,
    problem_options,
    read_cluster,
    read_problem,
    read_replication,
    read_search,
    read_shape,
    read_time,
    replication_options,
    search_options,
    shape_options,
    split_commas,
    stash_options,
    tables_on_ranks,
)
from recsmith.cli.printing import note, print_as, show_report
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.units import counted


@click.command(name="compare", cls=GroupedCommand)
@click.argument("workload")
@problem_options
@click.option(
    "--planners", cls=PluginOption, group=PLANNERS, callback=split_commas, metavar="A,B",
    help="Planners to compare (default: auto,cost_greedy,size_lookup_greedy,size_greedy).",
)  # fmt: skip
@click.option("--judges", callback=split_commas, metavar="A,B", help="Cost models that judge (default: best,torchrec).")
@click.option("--baseline", metavar="PLAN", help="The running plan: a plan, a planner's log, or a dumped ShardingPlan.")
@limit_options
@format_option
def compare_command(workload: str, format_: str, **options: Any) -> None:
    """Compare planners, and the plan that runs today, on WORKLOAD: cost under several cost models, bounds, memory.

    \b
    recsmith compare dlrm-v2 --cluster h100:8
    recsmith compare tables.json --cluster h100:8x12 --planners auto,cost_greedy --baseline running.json
    """
    from recsmith.analyses.compare import DEFAULT_JUDGES, DEFAULT_PLANNERS, compare
    from recsmith.reports.comparisons import comparison_report, comparison_to_raw

    with live("planning by each planner"):
        comparison = compare(
            **read_problem(workload, options),
            planners=DEFAULT_PLANNERS if options["planners"] is None else options["planners"],
            judges=DEFAULT_JUDGES if options["judges"] is None else options["judges"],
            baseline=options["baseline"],
            **read_search(options),
        )
    for row in comparison.rows:
        if row.truncated:
            note(f"the search of {row.name} was cut short; its plan is the best by then")
    print_as(format_, lambda: comparison_report(comparison), lambda: comparison_to_raw(comparison))


def _counts(_: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Whole numbers separated by commas, as a tuple."""
    if value is None:
        return None
    listed = [word.strip() for word in value.split(",") if word.strip()]
    odd = next((word for word in listed if not (word.isascii() and word.isdigit())), None)
    if odd is not None:
        raise UsageError(f"{option.opts[-1]}: '{odd}' is not a whole number; write for example 8,16,32")
    return tuple(map(int, listed))


@click.command(name="sweep", cls=GroupedCommand)
@click.argument("workload")
@click.option("--devices", callback=_counts, metavar="N,M", help="Numbers of devices, in whole hosts.")
@click.option(
    "--device", callback=split_commas, required=True, metavar="A,B", help="Device types, or files of clusters."
)
@click.option("--fewest-nodes", is_flag=True, help="Look for the fewest devices, by default of 1 to 64 whole hosts.")
@click.option("--step-time", callback=read_time, metavar="TIME", help="Longest step of --fewest-nodes, such as 20ms.")
@count_option("--per-host", help="Devices of a host (default: the device's).")
@click.option("--batch-size", callback=_counts, metavar="N,M", help="Samples per device and step.")
@click.option("--global-batch", callback=_counts, metavar="N,M", help="Samples of all devices and a step, instead.")
@click.option("--group-size", callback=_counts, metavar="N,M", help="Devices of a sharding group of a 2D job.")
@replication_options
@shape_options
@stash_options
@search_options
@click.option("-o", "--output", metavar="FILE", help="Write the points to a file, JSON or .csv ('-' for stdout).")
@force_option
@click.option("--format", "format_", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True,
              help="Output.")  # fmt: skip
def sweep_command(workload: str, output: str | None, force: bool, format_: str, **options: Any) -> None:
    """Plan WORKLOAD for several numbers of devices, device types and batches, and show where more devices stop paying.

    \b
    recsmith sweep dlrm-v2 --devices 8,16,32 --device h100,h200
    recsmith sweep tables.json --devices 8,16,32,64 --device h100 --global-batch 65536 -o sweep.csv
    recsmith sweep nvidia-jumbo --device h100 --fewest-nodes --step-time 20ms
    recsmith sweep tables.json --devices 96 --device h100 --group-size 24,48,96 --steps-per-sync 20
    """
    from recsmith.analyses.sweep import sweep
    from recsmith.files import check_target
    from recsmith.reports.comparisons import sweep_file

    kind = sweep_file(_is_csv(output or "", format_))
    check_target(output, inputs=inputs_of(workload, *options.values()), kind=kind, force=force)
    with live("planning the first point"):
        found = sweep(
            **_read_sweep(workload, options), **read_search(options), planner=options["planner"], on_point=_teller()
        )
    _notes(found)
    _print(found, output, format_)
    _end(found)


def _read_sweep(workload: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options as arguments of `sweep`; a CSV workload gets a batch size of the sweep, because it has none."""
    if options["fewest_nodes"] != (options["step_time"] is not None):
        raise UsageError("--fewest-nodes and --step-time go together: how many devices it takes for which step")
    if options["devices"] is None and not options["fewest_nodes"]:
        raise click.UsageError(
            "Missing option '--devices'; list numbers of devices, or add --fewest-nodes.", click.get_current_context()
        )
    hosts = [read_cluster(name, options) for name in options["device"]]
    if options["per_host"]:
        hosts = [_host_of(host, options["per_host"]) for host in hosts]
    any_batch = next(iter((options["batch_size"] or ()) + (options["global_batch"] or ())), None)
    return (
        read_shape(tables_on_ranks(workload, hosts[0]) if hosts else workload, any_batch, options)
        | read_replication(options)
        | {
            "devices": options["devices"],
            "fewest_under_s": options["step_time"],
            "device": hosts,
            "batch_sizes": options["batch_size"],
            "global_batches": options["global_batch"],
            "group_sizes": options["group_size"],
        }
    )


def _host_of(cluster: Any, per_host: int) -> Any:
    """One host with `per_host` devices; unchanged if devices differ in memory: `sweep` then says why it refuses."""
    if isinstance(cluster.hbm_bytes, tuple):
        return cluster
    return replace(cluster, local_world_size=per_host, hosts=1)


def _teller() -> Callable[[Any], None] | None:
    """A callback that shows each finished point of the sweep in the live line; None if there is no live line."""
    line, points = running(), list[Any]()
    if line is None:
        return None

    def on_point(point: Any) -> None:
        from recsmith.reports.comparisons import OUTCOMES, point_words
        from recsmith.units import format_time

        points.append(point)
        line.doing = f"sweeping, {counted(len(points), 'point')} done"
        said = OUTCOMES[point.outcome] if point.error else format_time(point.total_s)
        line.tell(f"last {point_words(point)}, {said}; Ctrl-C ends with them")

    return on_point


def _notes(found: Any) -> None:
    from recsmith.reports.comparisons import point_words

    for point in found.points:
        if point.truncated:
            note(f"the search of {point_words(point)} was cut short; its plan is the best by then")
    if found.left:
        total = len(found.points) + found.left
        note(f"interrupted; {found.left} of {counted(total, 'point')} are not done")


def _print(found: Any, output: str | None, format_: str) -> None:
    from recsmith.files import dump_json, write_text
    from recsmith.reports.comparisons import sweep_report, sweep_to_csv, sweep_to_raw

    def data(as_csv: bool) -> str:
        return sweep_to_csv(found) if as_csv else dump_json(sweep_to_raw(found))

    if output and output != "-":
        write_text(output, data(_is_csv(output, format_)))
    if format_ == "table" and output != "-":
        show_report(sweep_report(found))
    else:
        click.echo(data(format_ == "csv"), nl=False)


def _is_csv(output: str, format_: str) -> bool:
    return format_ == "csv" or output.lower().endswith(".csv")


def _end(found: Any) -> None:
    """Fail after printing if the sweep has no plan, or no number of devices has a step short enough."""
    outcomes = {point.outcome for point in found.points}
    if "planned" in outcomes and any(each.devices is None for each in found.fewest):
        raise NoPlanFound("no number of devices that was tried has so short a step; the points say what each has")
    if "planned" in outcomes:
        return
    if outcomes == {"infeasible"} and not found.left:
        raise Infeasible("no point of the sweep has a plan, proved for each; the points say what would help")
    raise NoPlanFound("no point of the sweep has a plan; the points say why")
