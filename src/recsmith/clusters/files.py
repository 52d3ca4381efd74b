"""Clusters by name (`h100:8x12`: 12 hosts of 8 devices) or from a YAML or JSON file."""

import re
from dataclasses import replace
from functools import cache
from importlib import resources

from recsmith.clusters.cluster import Cluster
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, check_schema, decode, did_you_mean, encode, parse, read_text

SCHEMA = "recsmith/cluster/1"
_NAME = re.compile(r"(?P<device>[a-z0-9-]+)(?::(?P<local>[0-9]{1,6})(?:x(?P<hosts>[0-9]{1,6}))?)?")


def catalogue() -> list[str]:
    """Names of the devices whose figures ship with RecSmith."""
    folder = resources.files("recsmith.clusters") / "catalogue"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


@cache
def _catalogue_cluster(device: str) -> Cluster:
    file = resources.files("recsmith.clusters") / "catalogue" / f"{device}.yaml"
    return cluster_from_raw(parse(file.read_text("utf-8"), file.name), file.name)


def load_cluster(source: str) -> Cluster:
    """The cluster of a catalogue name `<device>:<per host>[x<hosts>]`, or of a YAML or JSON file ('-' is stdin).

    Raises:
        UsageError: the name is unknown, or the file cannot be read.
        CorruptFile: the file is not a cluster.
    """
    match = _NAME.fullmatch(source)
    if match and (match["local"] or match["device"] in catalogue()):
        if match["device"] not in catalogue():
            raise UsageError(f"no device is called '{match['device']}'{did_you_mean(match['device'], catalogue())}")
        cluster = _catalogue_cluster(match["device"])
        local = int(match["local"]) if match["local"] else cluster.local_world_size
        return replace(cluster, local_world_size=local, hosts=int(match["hosts"] or 1))
    try:
        text = read_text(source)
    except CorruptFile:
        raise
    except UsageError as error:
        raise UsageError(f"{error}, or a device{did_you_mean(source.lower(), catalogue())}") from None
    return cluster_from_raw(parse(text, source), source)


def cluster_from_raw(raw: Raw, source: str) -> Cluster:
    """A cluster from plain data of schema recsmith/cluster/1."""
    return decode(Cluster, check_schema(raw, SCHEMA, source), source)


def cluster_to_raw(cluster: Cluster) -> Raw:
    """Plain data of a cluster, as a file holds it."""
    return {"schema": SCHEMA, **encode(cluster)}
