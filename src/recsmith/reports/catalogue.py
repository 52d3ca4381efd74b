"""Lists to choose from: devices, planners and cost models, and the installed versions."""

import inspect
import sys
from collections.abc import Container, Sequence

from rich.console import Group, RenderableType

from recsmith import _plugins
from recsmith._types import noun
from recsmith._version import __version__
from recsmith.adapters.installed import wanted_trio
from recsmith.clusters import Cluster, catalogue, cluster_to_raw, load_cluster
from recsmith.costs import COST_MODELS, DEFAULT_COST_MODEL
from recsmith.costs.neural.files import find_model, load_model
from recsmith.costs.published import COLLECTIVES, DEVICE, HOST, measured, published
from recsmith.costs.weight_files import PREFIX, shipped_models
from recsmith.files import Raw, encode
from recsmith.planning.registry import PLANNERS
from recsmith.reports.layout import Grid, grid, line, plain_line
from recsmith.units import format_size, format_speed

DEVICES_SCHEMA = "recsmith/devices/1"
HEADINGS = ("memory", "its speed", "cache", "host link", "in a host", "between", "a host", "checked")
REGISTRIES_SCHEMA = "recsmith/planners/1"
NEEDS = {
    "auto": "nothing; searches more with OR-Tools",
    "autoshard": "nothing; at its best on a device with a policy",
    "dreamshard": "nothing; at its best on a device with a policy",
    "exact": "OR-Tools, above some ten tables",
}
LABEL_WIDTH = 12  # characters of a label: the longest module name, `fbgemm_gpu`, and two spaces


def devices_report() -> RenderableType:
    """A row for each device of the catalogue, with a dash for figures without a source."""
    made = grid(left=("device",), right=HEADINGS, optional=("checked", "host link", "cache", "between"))
    hosted, ours = published()[HOST], measured()
    for name in catalogue():
        made.add_row(*_device_row(load_cluster(name)))
    return Group(
        made,
        line("figures", "memory that a program sees; peak speeds of a device, one direction; sources: --format json"),
        line("checked", "published times of kernels + collectives that cost model analytic was held beside; -: none"),
        line(
            "",
            f"how it keeps tables in {HOST} rests on one laboratory's {sum(each.figures for each in hosted.values())} "
            f"times of {' and '.join(hosted)}",
        ),
        line(
            "measured",
            f"kernels of {' and '.join(ours)}, {' and '.join(f'{each.figures:,}' for each in ours.values())} "
            f"groups of tables: cost models {' and '.join(f'{PREFIX}{name}' for name in ours)} know them",
        ),
        line("use", "--cluster h100:8x12 is 12 hosts of 8; a host of gb200 or gb300 is its NVLink domain"),
        line(
            "own", "in a YAML file: `schema: recsmith/cluster/1`, `device: {base: h100, name: mine, hbm_bytes: 60GiB}`"
        ),
    )


def _device_row(cluster: Cluster) -> tuple[str, ...]:
    device, links = cluster.device, cluster.links
    speeds = (device.host_link_bandwidth, links.intra_host_bandwidth, links.inter_host_bandwidth)
    return (
        device.name,
        format_size(device.hbm_bytes),
        format_speed(device.hbm_bandwidth),
        format_size(device.l2_bytes) if device.l2_bytes else "-",
        *(format_speed(speed) if speed else "-" for speed in speeds),
        str(cluster.local_world_size),
        _checked_words(device.name),
    )


def _checked_words(device: str) -> str:
    """Numbers of published times that the device was checked against: kernels + collectives; '-' for none."""
    counts = {part: seen[device].figures if device in seen else 0 for part, seen in published().items()}
    kernels = counts[DEVICE] + counts[HOST]
    return f"{kernels} + {counts[COLLECTIVES]}" if any(counts.values()) else "-"


def devices_to_raw() -> Raw:
    """One host of each device as in cluster files, with the published and our own measurements, as plain data."""
    return {
        "schema": DEVICES_SCHEMA,
        "devices": [cluster_to_raw(load_cluster(name)) for name in catalogue()],
        "published": {part: {name: encode(each) for name, each in seen.items()} for part, seen in published().items()},
        "measured": {name: encode(each) for name, each in measured().items()},
    }


@noun
class Named:
    """A name on the command line. about: one line on it. needs: packages that it needs besides RecSmith."""

    name: str
    about: str
    needs: str = "nothing"


def planners() -> tuple[Named, ...]:
    """All planners, the default one first."""
    own = (Named(name=name, about=_about(each), needs=NEEDS.get(name, "nothing")) for name, each in PLANNERS.items())
    return (*own, *_of_packages(_plugins.PLANNERS, PLANNERS))


def cost_models() -> tuple[Named, ...]:
    """All cost models: the default (mixed) one, those with formulas, the shipped learned ones, and other packages'."""
    formulas = (Named(name=name, about=_about(model)) for name, model in COST_MODELS.items())
    return (*formulas, *map(_learned, shipped_models()), *_of_packages(_plugins.COST_MODELS, COST_MODELS))


def _of_packages(group: str, own: Container[str]) -> list[Named]:
    """What other installed packages register; a package is imported only when it is used."""
    offered = _plugins.plugins(group).items()
    return [
        Named(name=name, about=f"Of {package}.", needs="that package") for name, package in offered if name not in own
    ]


def _learned(name: str) -> Named:
    card = load_model(find_model(name))[1]
    return Named(name=PREFIX + name, about=f"Learned from kernels on {card.device}.", needs="a cluster of that device")


def _about(named: object) -> str:
    """The object's own `about`, or the first line of its class's docstring."""
    about: str = getattr(named, "about", "")
    return about or (inspect.getdoc(type(named)) or "").partition("\n")[0]


def registries_report() -> RenderableType:
    """The table of planners and the table of cost models."""
    own = line(
        "own",
        "a learned cost model: recsmith learn cost -o mine.safetensors, then --cost-model neural:mine.safetensors",
    )
    return Group(
        _registry("planner", planners(), "auto"), _registry("cost model", cost_models(), DEFAULT_COST_MODEL), own
    )


def _registry(heading: str, rows: Sequence[Named], default: str) -> Grid:
    made = grid(left=(heading, "what it does", "needs"))
    for row in rows:
        made.add_row(f"{row.name} (default)" if row.name == default else row.name, row.about, row.needs)
    return made


def registries_to_raw() -> Raw:
    """Planners and cost models as plain data."""
    return {
        "schema": REGISTRIES_SCHEMA,
        "planners": [encode(each) for each in planners()],
        "cost_models": [encode(each) for each in cost_models()],
    }


def installation_lines(found: dict[str, str | None]) -> list[str]:
    """Installed versions by module (as from `trio_versions`), each with the wanted version."""
    wanted = wanted_trio(found)
    lines = [plain_line("recsmith", f"{__version__}, Python {sys.version.split()[0]}: planning works", LABEL_WIDTH)]
    for module, number in found.items():
        lines.append(plain_line(module, f"{number or 'not installed'} (wanted: {wanted[module]})", LABEL_WIDTH))
    return lines
