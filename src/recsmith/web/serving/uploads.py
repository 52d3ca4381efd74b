"""Files that a client sends, read as the command line reads them; none is read from the server's file system."""

import re
import warnings
from dataclasses import dataclass

from recsmith import _plugins
from recsmith.clusters import Cluster, load_cluster
from recsmith.clusters.files import SCHEMA as CLUSTER_SCHEMA
from recsmith.costs import COST_MODELS, DEFAULT_COST_MODEL
from recsmith.costs.weight_files import PREFIX, shipped_models
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, did_you_mean, parse
from recsmith.planning.registry import PLANNERS
from recsmith.planning.simulate import simulate
from recsmith.plans import PlacedTables, Plan
from recsmith.plans.files import SCHEMA as PLAN_SCHEMA
from recsmith.plans.files import load_placed
from recsmith.plans.running import running_plan
from recsmith.problems import Constraints, load_constraints
from recsmith.problems.constraint_files import CONSTRAINTS_SCHEMA
from recsmith.reports.comparisons import SWEEP_SCHEMA
from recsmith.reports.online import ONLINE_SCHEMA, online_from_raw
from recsmith.reports.sweep_files import WrittenSweep, sweep_from_raw
from recsmith.training.results.arms import OnlineResult
from recsmith.web.serving.settings import Refused, Settings
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.files import CSV_COLUMNS
from recsmith.workloads.torchrec_log import find_report

# samples per device and step, for a CSV that states none; the page says so and offers to change it
ASSUMED_BATCH = 8192
LONGEST_HEADER = 4096  # characters within which the first line of a CSV must end
LONGEST_NAME = 120  # characters of a file's name that messages show
_SCHEMA = re.compile(r"""["']?schema["']?\s*:\s*["']?(recsmith/[a-z-]+/1)""")


@dataclass(frozen=True)
class RunningText:
    """A plan that a job runs today, as TorchRec writes it. devices: the least number of ranks that it can have."""

    text: Given
    tables: int
    devices: int


@dataclass(frozen=True)
class ReadUpload:
    """What a file held. name: of the file, for people.

    assumed: fields that the file did not state about its tables. notes: what to know, in sentences. running: the plan
    that a job runs, which a log holds in addition to its tables.
    """

    name: str
    held: Workload | Cluster | Plan | Constraints | OnlineResult | WrittenSweep | RunningText
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    running: RunningText | None = None


def read_upload(
    data: bytes, name: str, settings: Settings, batch_size: int | None = None, *, assume: bool = False
) -> ReadUpload:
    """Read a text: a workload, cluster, plan, constraints, sweep, comparison of ways to train, or running plan.

    Files of RecSmith are recognised by their schema, CSV by its ending or its header; logs hold a workload and a
    running plan. assume: whether a CSV that states no batch size is read with ASSUMED_BATCH.

    Raises:
        UsageError: the text is none of these, or breaks a rule; the messages are those of the command line.
        Refused: it is too large for the page.
    """
    given = _given(data, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_log = find_report(given.text, given) is not None
        running = _running(given, is_log=is_log)
        batch, assumed = _assumed(given, batch_size, is_log=is_log, assume=assume)
        held = running if running and not is_log else _read(given, batch, is_log=is_log)
    if isinstance(held, PlacedTables | Plan):
        check_cost_model(held.cost_model or DEFAULT_COST_MODEL)
        check_size(held.workload, held.cluster, settings)
    elif isinstance(held, Workload):
        check_size(held, None, settings)
    return ReadUpload(
        str(given), simulate(given) if isinstance(held, PlacedTables) else held,
        assumed if isinstance(held, Workload) else (), tuple(dict.fromkeys(str(each.message) for each in caught)),
        None if running is held else running,
    )  # fmt: skip


def _given(data: bytes, name: str) -> Given:
    shown = shown_name(name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{shown}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    return Given.of(shown if shown.endswith(".csv") or not _is_table(text) else f"{shown}.csv", text)


def _is_table(text: str) -> bool:
    """Whether a text begins with the header of a CSV workload; pasted text has no file ending that says so."""
    words = text.lstrip()[:LONGEST_HEADER].partition("\n")[0].strip().split(",")
    return len(words) > 1 and set(words) <= set(CSV_COLUMNS)


def _running(given: Given, *, is_log: bool) -> RunningText | None:
    """The running plan of a text in one of TorchRec's forms, else None; also None for a log whose plan is invalid."""
    try:
        found = running_plan(given.text, given)
    except UsageError:
        if is_log:
            return None
        raise
    if found is None:
        return None
    ranks = max((rank for table in found.tables for rank in table.ranks), default=0)
    return RunningText(given, len(found.tables), found.world_size or ranks + 1)


def _assumed(given: Given, batch_size: int | None, *, is_log: bool, assume: bool) -> tuple[int | None, tuple[str, ...]]:
    """The batch size to read with, and the fields that neither the text nor the client states about its tables."""
    if given.endswith(".csv"):
        batch = ("batch_size",) if batch_size is None and assume else ()
        kinds = () if "data_type" in given.text.lstrip().partition("\n")[0] else ("data_type",)
        return (ASSUMED_BATCH if batch else batch_size), (*kinds, "optimizer", *batch)
    return batch_size, ("data_type", "optimizer") if is_log else ()


def _read(
    given: Given, batch_size: int | None, *, is_log: bool
) -> Workload | Cluster | Plan | PlacedTables | Constraints | OnlineResult | WrittenSweep:
    schema = None if is_log or given.endswith(".csv") else _schema_of(given)
    if schema == CLUSTER_SCHEMA:
        return load_cluster(given)
    if schema == PLAN_SCHEMA:
        return load_placed(given)
    if schema == CONSTRAINTS_SCHEMA:
        return load_constraints(given)
    if schema == ONLINE_SCHEMA:
        return online_from_raw(parse(given.text, given), given)
    if schema == SWEEP_SCHEMA:
        return sweep_from_raw(parse(given.text, given), given)
    return load_workload(given, batch_size=batch_size)


def _schema_of(given: Given) -> str | None:
    """The schema that a file of RecSmith names at its top level; None without one."""
    raw = parse(given.text, given) if _SCHEMA.search(given.text) else {}
    schema = raw.get("schema")
    return schema if isinstance(schema, str) else None


def shown_name(name: str) -> str:
    """The last part of a file's name, shortened and printable."""
    short = re.split(r"[/\\]", name)[-1][-LONGEST_NAME:]
    return "".join(sign if sign.isprintable() else "?" for sign in short) or "the file"


def check_size(workload: Workload, cluster: Cluster | None, settings: Settings) -> None:
    """Raise Refused (413) for problems that are too large for a page; the command line plans them."""
    tables, devices = len(workload.tables), cluster.world_size if cluster else 1
    within = tables <= settings.most_tables and devices <= settings.most_devices
    if not within or tables * devices > settings.most_cells:
        raise Refused(
            413,
            f"{tables:,} tables on {devices:,} devices are too many for this page, which takes {settings.most_tables:,}"
            f" tables, {settings.most_devices:,} devices and {settings.most_cells:,} of the two multiplied; "
            "use `recsmith plan`",
        )


def check_cost_model(name: str) -> None:
    """Raise UsageError for a cost model that is not shipped or installed; paths of files are not accepted."""
    learned = [PREFIX + each for each in shipped_models()]
    known = [*COST_MODELS, *learned, *_plugins.plugin_names(_plugins.COST_MODELS)]
    if name not in known:
        raise UsageError(f"no cost model of this page is called '{name[:LONGEST_NAME]}'{did_you_mean(name, known)}")


def check_planner(name: str) -> None:
    """Raise UsageError for a planner that is not shipped or installed; names that contain a file are not accepted."""
    known = [*PLANNERS, *_plugins.plugin_names(_plugins.PLANNERS)]
    if name not in known:
        raise UsageError(f"no planner of this page is called '{name[:LONGEST_NAME]}'{did_you_mean(name, known)}")
