"""Files that a client sends, read as the command line reads them; never looked for in the file system."""

import re
from dataclasses import dataclass

from recsmith import _plugins
from recsmith.clusters import Cluster, cluster_from_raw
from recsmith.clusters.files import SCHEMA as CLUSTER_SCHEMA
from recsmith.clusters.files import write_out
from recsmith.costs import COST_MODELS, DEFAULT_COST_MODEL
from recsmith.costs.weight_files import PREFIX, shipped_models
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, did_you_mean, parse
from recsmith.planning.registry import PLANNERS
from recsmith.planning.simulate import simulate
from recsmith.plans import PlacedTables, Plan
from recsmith.plans.files import SCHEMA as PLAN_SCHEMA
from recsmith.plans.files import load_placed
from recsmith.problems import Constraints, load_constraints
from recsmith.problems.constraint_files import CONSTRAINTS_SCHEMA
from recsmith.reports.online import ONLINE_SCHEMA, online_from_raw
from recsmith.training.results.arms import OnlineResult
from recsmith.web.serving.settings import Refused, Settings
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.torchrec_log import find_report

LONGEST_NAME = 120  # characters of a file's name that messages show
_SCHEMA = re.compile(r"""["']?schema["']?\s*:\s*["']?(recsmith/[a-z-]+/1)""")


@dataclass(frozen=True)
class ReadUpload:
    """What a file held. name: of the file, for people."""

    name: str
    held: Workload | Cluster | Plan | Constraints | OnlineResult


def read_upload(data: bytes, name: str, settings: Settings, batch_size: int | None = None) -> ReadUpload:
    """What a file holds, told by its schema: a workload, cluster, plan, constraints, or how a stream is learned best.

    A log or CSV holds a workload.

    Raises:
        UsageError: the file is none of these, or breaks a rule; the sentences are those of the command line.
        Refused: it is too large for the page.
    """
    shown = shown_name(name)
    try:
        given = Given.of(shown, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{shown}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    held = _read(given, batch_size)
    if isinstance(held, PlacedTables | Plan):
        check_cost_model(held.cost_model or DEFAULT_COST_MODEL)
        check_size(held.workload, held.cluster, settings)
    elif isinstance(held, Workload):
        check_size(held, None, settings)
    return ReadUpload(shown, simulate(given) if isinstance(held, PlacedTables) else held)


def _read(
    given: Given, batch_size: int | None
) -> Workload | Cluster | Plan | PlacedTables | Constraints | OnlineResult:
    schema = None if given.endswith(".csv") else _schema_of(given)
    if schema == CLUSTER_SCHEMA:
        return cluster_from_raw(write_out(parse(given.text, given), given), given)
    if schema == PLAN_SCHEMA:
        return load_placed(given)
    if schema == CONSTRAINTS_SCHEMA:
        return load_constraints(given)
    if schema == ONLINE_SCHEMA:
        return online_from_raw(parse(given.text, given), given)
    return load_workload(given, batch_size=batch_size)


def _schema_of(given: Given) -> str | None:
    """The schema that a file of RecSmith names: the first one outside of logs, whose reader knows them."""
    if find_report(given.text, given) is not None:
        return None
    raw = parse(given.text, given) if _SCHEMA.search(given.text) else {}
    schema = raw.get("schema")
    return schema if isinstance(schema, str) else None


def shown_name(name: str) -> str:
    """The last part of a file's name, short and printable."""
    short = re.split(r"[/\\]", name)[-1][-LONGEST_NAME:]
    return "".join(sign if sign.isprintable() else "?" for sign in short) or "the file"


def check_size(workload: Workload, cluster: Cluster | None, settings: Settings) -> None:
    """Refuse (413) problems that are too large for a page; the command line plans them."""
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
    """Refuse a cost model that is not one of those that ship or are installed: a file's path is none."""
    learned = [PREFIX + each for each in shipped_models()]
    known = [*COST_MODELS, *learned, *_plugins.plugin_names(_plugins.COST_MODELS)]
    if name not in known:
        raise UsageError(f"no cost model of this page is called '{name[:LONGEST_NAME]}'{did_you_mean(name, known)}")


def check_planner(name: str) -> None:
    """Refuse a planner that is not one of those that ship or are installed: a word with a file in it is none."""
    known = [*PLANNERS, *_plugins.plugin_names(_plugins.PLANNERS)]
    if name not in known:
        raise UsageError(f"no planner of this page is called '{name[:LONGEST_NAME]}'{did_you_mean(name, known)}")
