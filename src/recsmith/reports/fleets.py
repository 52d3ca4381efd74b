"""The assignment of a fleet's jobs to pools: as a table with reasons, and as plain data."""

from recsmith.analyses.fleet import Fleet
from recsmith.files import Raw, encode
from recsmith.units import format_time


def fleet_lines(found: Fleet) -> list[str]:
    """A table of jobs, their total cost, and free hosts."""
    wide = max(len("job"), *(len(each.way.job) for each in found.jobs))
    place = max(len("pool"), *(len(each.way.pool) for each in found.jobs))
    lines = [f"{'job':{wide}}  {'pool':{place}}  hosts      step     hours    dollars  why"]
    for each in found.jobs:
        way = each.way
        lines.append(
            f"{way.job:{wide}}  {way.pool:{place}}  {way.hosts:5}  {format_time(way.step_s):>8}  {way.hours:8,.1f}  "
            f"{way.dollars:9,.0f}  {each.why}"
        )
    free = ", ".join(f"{hosts} of {name}" for name, hosts in found.free.items())
    return [
        *lines, "",
        f"together  ${found.dollars:,.0f}, at most {found.gap:.2%} above the least of {found.ways:,} ways",
        f"free      {free}",
        "steps     predicted: embeddings by a quick planner, the rest as the jobs say; all jobs train at the same time",
        *(f"left out  {each}" for each in found.left_out),
    ]  # fmt: skip


def fleet_to_raw(found: Fleet) -> Raw:
    """An assignment as plain data."""
    return {"schema": "recsmith/fleet/1", **encode(found), "gap": found.gap}
