"""Clusters by name (`h100:8x12`: 12 hosts of 8 devices) or from a YAML or JSON file."""

import re
from dataclasses import replace
from functools import cache

from recsmith.clusters.catalogued import catalogue, catalogue_raw, unknown_device
from recsmith.clusters.cluster import Cluster
from recsmith.clusters.schema import SCHEMA
from recsmith.clusters.short_forms import write_out
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, Raw, Source, check_schema, decode, encode, parse, read_text, source_text

_NAME = re.compile(r"(?P<device>[a-z0-9-]+)(?::(?P<local>[0-9]{1,6})(?:x(?P<hosts>[0-9]{1,6}))?)?")


@cache
def _catalogue_cluster(device: str) -> Cluster:
    return cluster_from_raw(catalogue_raw(device), f"{device}.yaml")


def load_cluster(source: Cluster | Source) -> Cluster:
    """The cluster of a catalogue name `<device>:<per host>[x<hosts>]`, or of a YAML or JSON file ('-' is stdin).

    A Cluster is taken as it is. Files may use short forms (short_forms.py). Names are taken in any case: `H100:8` is
    `h100:8`.

    Raises:
        UsageError: the name is unknown, or the file cannot be read.
        CorruptFile: the file is not a cluster.
    """
    if isinstance(source, Cluster):
        return source
    source = source_text(source, "a Cluster")
    named = None if isinstance(source, Given) else named_cluster(source)
    if named is not None:
        return named
    try:
        text = read_text(source)
    except CorruptFile:
        raise
    except UsageError as error:
        raise UsageError(f"{error}, or a device{unknown_device(source.lower())}") from None
    return cluster_from_raw(write_out(parse(text, source), source), source)


def named_cluster(name: str) -> Cluster | None:
    """The cluster of a catalogue name such as h100:8x12; None for what is no such name, as a path is none.

    Raises:
        UsageError: no device of the catalogue is called so.
    """
    match = _NAME.fullmatch(name.lower())
    if not match or not (match["local"] or match["device"] in catalogue()):
        return None
    if match["device"] not in catalogue():
        raise UsageError(f"no device is called '{match['device']}'{unknown_device(match['device'])}")
    cluster = _catalogue_cluster(match["device"])
    local = int(match["local"]) if match["local"] else cluster.local_world_size
    return replace(cluster, local_world_size=local, hosts=int(match["hosts"] or 1))


def cluster_from_raw(raw: Raw, source: str) -> Cluster:
    """A cluster from plain data of schema recsmith/cluster/1."""
    return decode(Cluster, check_schema(raw, SCHEMA, source), source)


def cluster_to_raw(cluster: Cluster) -> Raw:
    """Plain data of a cluster, as a file holds it."""
    return {"schema": SCHEMA, **encode(cluster)}
