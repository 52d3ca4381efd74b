"""Options that several commands share, under the same names, and functions that read their values."""

import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from recsmith import _plugins
from recsmith.cli.printing import OWN_PROCESS, note
from recsmith.units import parse_size, parse_speed, parse_time

# Names that --help lists, written out because --help imports nothing costly; a test compares them with the registries.
PLANNERS = (
    "auto", "neuroshard", "dreamshard", "autoshard", "ldm", "longest_first", "random", "dim_greedy", "size_greedy",
    "lookup_greedy", "size_lookup_greedy", "cost_greedy", "exact",
)  # fmt: skip
TYPES = (
    "table_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise", "grid_shard", "data_parallel",
)  # fmt: skip
KERNELS = ("fused", "dense", "fused_uvm", "fused_uvm_caching", "key_value")
DEVICES = (
    "a100-40", "a100-80", "a10g", "b200", "b300", "cpu", "gb200", "gb300", "h100", "h200", "l4", "l40s", "mi300x",
    "mi325x", "mi350x", "mi355x", "torchrec-default", "v100-32",
)  # fmt: skip

OPTION_GROUPS = {  # for commands that search: names of options under each title of `--help`
    "Problem": ("workload", "cluster", "devices", "device", "per_host", "batch_size", "global_batch", "hbm", "reserve",
                "optimizer", "memory", "baseline"),
    "2D jobs": ("group_size", "steps_per_sync", "inter_host_allreduce"),
    "Search space": ("types", "widths", "kernels", "cache_factors", "cache_policy", "keep_exact",
                             "stash", "activations", "dense_time"),
    "Constraints": ("constraints", "pin", "pin_tables", "max_moved", "curve", "steps_left", "link"),
    "Search": ("planner", "planners", "cost_model", "judges", "iterations", "time_limit", "seed", "prove"),
    "The step of --objective step_time": ("objective", "step", "machine"),
    "Objective": ("wanted", "prices", "step_under", "budget"),
    "The job as it runs": ("running", "step_time", "capture", "settings", "steps_tried"),
    "Output": ("what_if", "output", "certificate", "force", "verbose", "format_"),
}  # fmt: skip
# Seconds that a command takes after its search, in total, per table, and per table if the whole plan is written.
ENDING_S, ENDING_TABLE_S, WRITING_TABLE_S = 0.05, 5e-5, 1e-4
# seconds left to a search when the start of the command used up its time limit: the search then makes its first plan
LEAST_LIMIT_S = 1e-3
BEGINNING = 4096  # bytes read from the start of a file to tell whether it is a plan or a run
RUN = b"recsmith/run/"
MOST_VISITS = 10_000  # repetitions of a measurement; a larger number is refused as a mistake
Command = TypeVar("Command", bound=Callable[..., Any])
Quantity = TypeVar("Quantity", int, float)


def listed(names: tuple[str, ...]) -> str:
    """Names joined by commas, as --help shows them and options accept them."""
    return ", ".join(names)


class PluginOption(click.Option):
    """An option whose help ends with the names that other packages register under a group of entry points."""

    def __init__(self, *declarations: Any, group: str, **options: Any) -> None:
        super().__init__(*declarations, **options)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option's names and help text; other packages are searched for when the help is printed."""
        from recsmith._plugins import plugin_names

        record = super().get_help_record(ctx)
        offered = plugin_names(self.group)
        return (record[0], f"{record[1]} Of other packages: {', '.join(offered)}.") if record and offered else record


class GroupedCommand(click.Command):
    """A command with so many options that its help lists them in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the titles of their groups."""
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in (*OPTION_GROUPS, "Other")}
        titles = {name: title for title, names in OPTION_GROUPS.items() for name in names}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                records[titles.get(option.name or "", "Other")].append(record)
        for title, some in records.items():
            if some:
                with formatter.section(title):
                    formatter.write_dl(some)


def stack(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator that adds several options, in the order of --help."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def count_option(*names: str, least: int = 1, most: int | None = None, **more: Any) -> Callable[[Command], Command]:
    """An option for a whole number >= `least`, whose default --help shows. more: keyword arguments of click.option."""
    more = {"type": click.IntRange(least, most), "metavar": "N", "show_default": "default" in more, **more}
    return click.option(*names, **more)


def split_commas(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names separated by commas, as a tuple."""
    return None if value is None else tuple(word.strip() for word in value.split(",") if word.strip())


def _shares(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    try:
        return None if value is None else tuple(float(word) for word in split_commas(context, parameter, value) or ())
    except ValueError as error:
        raise click.BadParameter(f"{error}; write shares such as 0.1,0.2") from None


def _quantity(parse: Callable[[str], Quantity]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """The callback of an option whose value `parse` turns into bytes, seconds or bytes per second."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> Quantity | None:
        return None if value is None else parse(value)

    return read


size_value = _quantity(parse_size)  # bytes from text such as 40GiB
read_time = _quantity(parse_time)  # seconds from text such as 10s
read_speed = _quantity(parse_speed)  # bytes per second from text such as 25GB/s

_HBM = click.option("--hbm", callback=size_value, metavar="SIZE", help="Device memory, such as 60GiB.")
_RESERVE = click.option(
    "--reserve", callback=size_value, metavar="SIZE",
    help="Memory kept free on every device. By default an estimate for GPUs, unless --hbm is given.",
)  # fmt: skip
_OPTIMIZER = click.option("--optimizer", metavar="NAME", help="Sparse optimizer instead of the workload's.")

_MEMORY = click.option(
    "--memory", type=click.Choice(["real", "torchrec"]), default="real", show_default=True,
    help="Memory accounting that must fit.",
)  # fmt: skip

_CLUSTER = click.option(
    "--cluster", "-c", required=True, metavar="C",
    help=f"`<device>:<per host>[x<hosts>]` or a file. Devices: {listed(DEVICES)}.",
)  # fmt: skip

_BATCH = count_option("--batch-size", help="Samples per device and step.")
cluster_options = stack(_CLUSTER, _BATCH, _HBM, _RESERVE, _OPTIMIZER, _MEMORY)  # for commands that are given a plan

shape_options = stack(  # the problem without its cluster and batch, which a sweep varies
    _HBM, _RESERVE, _OPTIMIZER,
    click.option("--types", callback=split_commas, metavar="A,B",
                 help=f"Sharding types to choose from (default: all): {listed(TYPES)}."),
    click.option("--widths", type=click.Choice(["torchrec", "any"]), default="any", show_default=True,
                 help="Column widths: TorchRec's one width, or any multiples of 4."),
    click.option("--kernels", callback=split_commas, metavar="A,B",
                 help=f"Compute kernels of {listed(KERNELS)} (default: fused,dense)."),
    click.option("--cache-factors", callback=_shares, metavar="A,B",
                 help="Shares of the rows that fused_uvm_caching and key_value keep on a device "
                      "(default: 0.05,0.1,0.2,0.5)."),
    click.option("--cache-policy", type=click.Choice(["lru", "static"]), default=None,
                 help="Rows that key_value keeps: those read last (default), or, static, those read most."),
    _MEMORY,
    click.option("--keep-exact", is_flag=True, default=False, help="No column splits under row-wise optimizers."),
    click.option("--constraints", metavar="FILE",
                 help="File of constraints: rules for tables, ranks, pins, tables together or apart."),
    click.option("--pin", metavar="PLAN",
                 help="Keep tables where this plan has them; plan tables that it does not have."),
    click.option("--pin-tables", callback=split_commas, metavar="A,B",
                 help="Tables that --pin keeps: names or patterns (default: all)."),
)  # fmt: skip

stash_options = stack(  # tables whose weights wait in host memory during the dense layers (docs/stashing.md)
    click.option("--stash", type=click.Choice(["weights", "weights_and_state"]), default=None,
                 help="What of tables may be in host memory between lookup and update (stash_weights)."),
    click.option("--activations", callback=size_value, metavar="SIZE",
                 help="With --stash or --fully-sharded: the part of the reserve that is activations."),
    click.option("--dense-time", callback=read_time, metavar="TIME",
                 help="With --stash: dense forward and backward time of a step, which copies overlap with."),
)  # fmt: skip

replication_options = stack(  # how the replicas of a 2D job synchronise
    click.option("--steps-per-sync", type=int, metavar="N",
                 help="Steps from one synchronisation of the replicas to the next (default: 1)."),
    click.option("--inter-host-allreduce", is_flag=True, default=False,
                 help="Sharding groups of neighbouring ranks, DMPCollection's use_inter_host_allreduce."),
    click.option("--fully-sharded", is_flag=True, default=False,
                 help="Replicas share one copy of weights while dense layers work (FULLY_SHARDED)."),
)  # fmt: skip

_GROUP_SIZE = click.option(
    "--group-size", type=int, metavar="N",
    help="Devices of a sharding group of a 2D job (DMPCollection); the cluster is the whole job's.",
)  # fmt: skip

group_options = stack(_GROUP_SIZE, replication_options)  # a 2D job whose cluster is given
problem_options = stack(_CLUSTER, _BATCH, group_options, shape_options)

replan_options = stack(  # changes to the problem that an old plan states
    click.option("--workload", metavar="W", help="The tables from now on (default: those of OLD)."),
    click.option("--cluster", "-c", metavar="C", help="The devices from now on (default: those of OLD)."),
    _BATCH, _HBM, _RESERVE, _OPTIMIZER,
    click.option("--constraints", metavar="FILE", help="Constraints from now on (default: those of OLD)."),
)  # fmt: skip

limit_options = stack(
    click.option(
        "--cost-model", cls=PluginOption, group=_plugins.COST_MODELS, metavar="M",
        help="best (default: learned where the device was measured, else fitted), fitted, analytic, torchrec, "
        "neural:cpu, neural:h100, neural:h200, neural:simulated-h100 (a formula, no device), or neural:<.safetensors>.",
    ),
    count_option("--iterations", help="Stop after N iterations."),
    click.option("--time-limit", callback=read_time, metavar="TIME", help="Stop after a time such as 10s."),
    count_option("--seed", default=0, least=0, help="Seed of random planners."),
)  # fmt: skip

search_options = stack(
    click.option(
        "--planner",
        cls=PluginOption,
        group=_plugins.PLANNERS,
        default="auto",
        show_default=True,
        metavar="P",
        help=f"Planner: {listed(PLANNERS)}.",
    ),
    limit_options,
)

format_option = click.option(
    "--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output."
)

force_option = click.option("--force", is_flag=True, default=False, help="Overwrite a file of another kind.")


tower_options = stack(  # a plan whose hosts have towers (docs/towers.md)
    count_option("--towers", metavar="HOSTS",
                 help="Give each host a tower: tables of about equal cost, each on one host."),
    click.option("--tower-groups", type=click.Choice(["coherent", "diverse", "random"]), default=None,
                 help="Similar tables in one tower (coherent, with --trained the default) or apart (diverse)."),
    click.option("--trained", metavar="OUTPUT/model", help="Model of these tables, for coherent and diverse towers."),
)  # fmt: skip


def read_towers(options: dict[str, Any]) -> Any:
    """Remove `tower_options` from `options` and return them as a TowerRequest; None without --towers."""
    from recsmith.analyses.towers import TowerRequest
    from recsmith.errors import UsageError

    count, groups, trained = (options.pop(name) for name in ("towers", "tower_groups", "trained"))
    if count is None:
        if groups is not None or trained is not None:
            raise UsageError("--tower-groups and --trained are of --towers HOSTS; add it, or leave them out")
        return None
    return TowerRequest(count, groups or ("random" if trained is None else "coherent"), trained)


def inputs_of(*arguments: Any) -> list[str]:
    """The string arguments of a command, also those in lists: each may name a file that the command reads."""
    listed: list[Any] = []
    for value in arguments:
        listed += cast(list[Any], value) if isinstance(value, list | tuple) else [value]
    return [each for each in listed if isinstance(each, str)]


def read_problem(workload: str, options: dict[str, Any]) -> dict[str, Any]:
    """The values of `problem_options` as the arguments `workload`, `cluster`, `constraints` and `space` of `plan`."""
    cluster = read_group(options)
    return {"cluster": cluster} | read_shape(tables_on_ranks(workload, cluster), options["batch_size"], options)


def tables_on_ranks(workload: str, cluster: Any) -> Any:
    """The tables of a run file as the ranks of a cluster look them up; any other name is returned unchanged."""
    if not is_run(workload):
        return workload
    from recsmith.advising.runs import tables_on

    return tables_on(workload, cluster)


def is_run(name: str) -> bool:
    """Whether a file begins as a run file does. False if it cannot be read: whoever reads the tables reports that."""
    return RUN in beginning_of(name)


def named_data(data: str) -> Any:
    """The data given to a command: for a run file the spec in its data.train, otherwise the argument itself."""
    if not tell_run(data):
        return data
    from recsmith.data import spec_from_raw
    from recsmith.training.run.named import data_of_run

    found = data_of_run(data)
    return spec_from_raw({**found}, f"{data}: data.train") if isinstance(found, dict) else found


def tell_run(data: str | None) -> bool:
    """Whether a run file is given as data; if so, a note says that its data.train is read."""
    if data is None or not is_run(data):
        return False
    from recsmith.training.run.named import is_run_file

    if found := is_run_file(data):
        note(f"'{data}' is a run; its data.train is read")
    return found


def read_group(options: dict[str, Any]) -> Any:
    """The cluster that a plan is for: the whole cluster, or one sharding group of it if --group-size is given."""
    from recsmith.clusters import sharding_group

    cluster, replication = read_cluster(options["cluster"], options), read_replication(options)
    return cluster if options["group_size"] is None else sharding_group(cluster, options["group_size"], **replication)


def read_replication(options: dict[str, Any]) -> dict[str, Any]:
    """The values of `replication_options` as arguments of `sharding_group`; UsageError without --group-size."""
    from recsmith.errors import UsageError

    given = [name for name in ("steps_per_sync", "inter_host_allreduce", "fully_sharded") if options[name]]
    if options["group_size"] is None and given:
        raise UsageError(f"--{given[0].replace('_', '-')} says how sharding groups are replicated; add --group-size")
    steps = 1 if options["steps_per_sync"] is None else options["steps_per_sync"]
    return {"steps_per_sync": steps, "use_inter_host_allreduce": options["inter_host_allreduce"],
            "fully_sharded": options["fully_sharded"]}  # fmt: skip


def read_search(options: dict[str, Any]) -> dict[str, Any]:
    """The values of `limit_options` as the arguments `cost_model`, `seed`, `iterations` and `time_limit_s`."""
    named = {name: options[name] for name in ("cost_model", "seed", "iterations")}
    return named | {"time_limit_s": options["time_limit"]}


def left_of_limit(time_limit_s: float | None, tables: int = 0, *, written: bool = False) -> float | None:
    """Seconds that a search of `tables` tables may take, so that its command ends within the time limit.

    The whole limit if a program calls the command. written: whether the plan is also written in full.
    """
    if time_limit_s is None or not has_own_process():
        return time_limit_s
    ending_s = ENDING_S + tables * (ENDING_TABLE_S + (WRITING_TABLE_S if written else 0.0))
    return max(time_limit_s - command_age_s() - ending_s, LEAST_LIMIT_S)


def has_own_process() -> bool:
    """Whether the command runs as its own process, not called from a Python program."""
    return click.get_current_context().find_root().obj == OWN_PROCESS


def command_age_s() -> float:
    """Seconds since the command's process started; 0.0 if a Python program calls the command."""
    from recsmith._process import age_s

    return age_s() if has_own_process() else 0.0


def read_cluster(name: str, options: dict[str, Any]) -> Any:
    """The cluster of a name or file, with device memory and reserve as the options say."""
    from recsmith.clusters import large_host, load_cluster

    cluster = load_cluster(name).with_memory(options["hbm"], options["reserve"])
    if said := large_host(name):
        note(said)
    return cluster


def read_stash(options: dict[str, Any]) -> Any:
    """The Stashing that `stash_options` ask for; None if none of them is given, or the command does not have them."""
    from recsmith.errors import UsageError
    from recsmith.problems.dense_bytes import Stashing

    what, activations, dense_s = (options.get(name) for name in ("stash", "activations", "dense_time"))
    if options.get("fully_sharded"):
        if what is not None or dense_s is not None:
            raise UsageError(
                "--stash and --dense-time are of tables that rest in host memory; with --fully-sharded "
                "replicas divide weights among them: leave one of the two out"
            )
        return Stashing(activations=activations)
    if what is None:
        if activations is not None or dense_s is not None:
            raise UsageError(
                "--activations is of --stash and --fully-sharded, --dense-time of --stash; add it, or leave them out"
            )
        return None
    return Stashing(what=what, activations=activations, dense_s=dense_s)


def tables_of(workload: Any) -> Any:
    """The workload inside a plan file, if one is named; any other name, or a Workload, is returned unchanged."""
    from recsmith.plans import PLAN_FILE, load_plan

    if not isinstance(workload, str):
        return workload
    return load_plan(workload).workload if re.match(PLAN_FILE, beginning_of(workload)) else workload


def beginning_of(name: str) -> bytes:
    """The first bytes of a file; empty if there is no such file or it cannot be read: its reader reports the error."""
    from pathlib import Path

    try:
        with Path(name).open("rb") as file:
            return file.read(BEGINNING)
    except (OSError, ValueError):
        return b""


def read_shape(workload: Any, batch_size: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """The values of `shape_options` as the arguments `workload`, `constraints` and `space`."""
    from dataclasses import replace

    from recsmith.errors import UsageError
    from recsmith.problems import Constraints, Space, load_constraints, pins_of
    from recsmith.sharding import CACHED_KERNELS, KEY_VALUE, UVM_CACHING
    from recsmith.workloads import load_workload

    names = ("types", "kernels", "cache_factors", "cache_policy")
    chosen = {name: options[name] for name in names if options[name] is not None}
    space = Space(widths=options["widths"], **chosen)
    if "cache_factors" in chosen and not space.has_caches:
        kernels = ",".join((*space.kernels, UVM_CACHING.name))
        raise UsageError(
            f"--cache-factors are those of kernels {' and '.join(CACHED_KERNELS)}; add one: --kernels {kernels}"
        )
    if "cache_policy" in chosen and not space.on_disk:
        kernels = ",".join((*space.kernels, KEY_VALUE.name))
        raise UsageError(f"--cache-policy is of kernel {KEY_VALUE.name}; add it: --kernels {kernels}")
    given = load_constraints(options["constraints"]) if options["constraints"] else Constraints()
    if options["pin_tables"] is not None and not options["pin"]:
        raise UsageError("--pin-tables says which tables --pin keeps; add --pin PLAN")
    rests = read_stash(options)
    pins = pins_of(options["pin"], tables=options["pin_tables"] or ("*",)) if options["pin"] else ()
    return {
        "space": space,
        "constraints": replace(
            given, memory=options["memory"], rules=(*given.rules, *pins), keep_exact=options["keep_exact"], stash=rests
        ),
        "workload": load_workload(tables_of(workload), batch_size=batch_size, optimizer=options["optimizer"]),
    }
