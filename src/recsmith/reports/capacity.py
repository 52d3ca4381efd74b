"""How many rows the tables of a stream need: as curves for people, and as plain data."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType

from recsmith.errors import UsageError
from recsmith.files import Raw, Source, check_schema, decode, encode, parse, read_text, source_text
from recsmith.plans import Plan
from recsmith.reports.layout import Grid, grid, line
from recsmith.streaming.capacity.capacity import Capacity, FeatureCapacity, PolicyRows
from recsmith.streaming.capacity.prices import SizedTables, served_at
from recsmith.units import format_size, format_time
from recsmith.workloads import Table

SCHEMA = "recsmith/capacity/1"
BAR = 24  # characters of a bar for 100 % of the lookups
BESIDE = ("row_bytes", "sized")  # keys of the plain data in addition to the capacity's own
MOST_FEATURES = 12  # features whose curves are shown; the plain data has all


def capacity_report(capacity: Capacity, row_bytes: int, sized: Sequence[SizedTables] = ()) -> RenderableType:
    """How many samples were read, a curve for each feature, and the size of all tables at several capacities."""
    stopped = "; stopped before the end" if capacity.stopped else ""
    what = "by sketches of a job, and a law that met them" if capacity.by_law else "read in order"
    parts: list[RenderableType] = [
        line("samples", f"{capacity.samples:,}, {what}{stopped}"),
        line("served", "lookups whose id has a row already; the first of an id, which gets it one, is not"),
    ]
    for each in capacity.features[:MOST_FEATURES]:
        parts += _feature(each, capacity, row_bytes)
    if len(capacity.features) > MOST_FEATURES:
        parts.append(line("", f"… {len(capacity.features) - MOST_FEATURES} more features, in --format json"))
    return Group(*parts, *_sized(sized, capacity))


def _feature(feature: FeatureCapacity, capacity: Capacity, row_bytes: int) -> Iterator[RenderableType]:
    chosen = "" if feature.sampled == 1 else f", by {feature.sampled:.3g} of the ids"
    yield line("", "")
    yield line("feature", f"'{feature.feature}': {feature.lookups:,} lookups of {feature.distinct:,} ids{chosen}")
    tenth, half, ids = (feature.over_time[at] for at in (0, 4, 9))
    yield line("ids", f"{tenth:,} in the first tenth, {half:,} in half, {ids:,} in all; of the last tenth's lookups "
                      f"{feature.new_share:.2%} are of new ids")  # fmt: skip
    yield _curve(feature, row_bytes)
    reach = f"{100 * capacity.serve:.6g} % of what any table can serve ({feature.reachable:.1%} of the lookups)"
    needs = ", ".join(_needs(each) for each in feature.policies)
    yield line("rows", f"{reach}: {needs}")
    forecast = feature.forecast
    if forecast is not None:
        rows = ", ".join(f"{policy} {round(each):,}" for policy, each in forecast.rows.items())
        within = "as many: no new id came in the second half" if forecast.law is None else (
            f"{forecast.low:.2f} to {forecast.high:.2f} times that"
        )  # fmt: skip
        yield line(
            "whole", f"{forecast.lookups:,} lookups, of about {round(forecast.distinct):,} ids, need {rows} ({within})"
        )
    elif feature.untold:
        yield line("whole", f"not predicted: {feature.untold}")


def _needs(policy: PolicyRows) -> str:
    within = "" if policy.low == policy.high else f" ({policy.low:,} to {policy.high:,})"
    return f"{policy.policy} {policy.rows:,}{within}"


def _curve(feature: FeatureCapacity, row_bytes: int) -> Grid:
    """Table sizes and the hit rates they give, by policy; the bar is for the first policy."""
    made = grid(left=("of all lookups",), right=("rows", "bytes", *(each.policy for each in feature.policies)))
    for at, rows in enumerate(feature.sizes):
        shares = [each.served[at] for each in feature.policies]
        bar = "█" * round(shares[0] * BAR)
        made.add_row(
            bar.ljust(BAR, "·"), f"{rows:,}", format_size(rows * row_bytes), *(f"{each:.1%}" for each in shares)
        )
    return made


def _sized(sized: Sequence[SizedTables], capacity: Capacity) -> Iterator[RenderableType]:
    if not sized:
        return
    planned = any(each.step_s is not None or each.problem for each in sized)
    heads = ("rows", "bytes", "served", *(("step", "fullest device") if planned else ()))
    made = grid(left=("all tables",), right=heads)
    for each in sized:
        step = "no room" if each.problem else "" if each.step_s is None else format_time(each.step_s)
        fullest = "" if each.device_bytes is None else format_size(each.device_bytes)
        of_rows = f"{each.times:g} times what {100 * capacity.serve:.6g} % needs"
        made.add_row(of_rows, f"{each.rows:,}", format_size(each.bytes),
                     f"{each.served:.1%}", *((step, fullest) if planned else ()))  # fmt: skip
    yield made
    problem = next((each.problem for each in sized if each.problem), "")
    if problem:
        yield line("no room", problem)


def capacity_to_raw(capacity: Capacity, row_bytes: int, sized: Sequence[SizedTables] = ()) -> Raw:
    """A capacity as plain data."""
    return {
        "schema": SCHEMA, **encode(capacity), "row_bytes": row_bytes, "sized": [encode(each) for each in sized],
    }  # fmt: skip


def load_capacity(source: Source) -> Capacity:
    """The capacity in a file that `recsmith data capacity --format json` wrote.

    Raises:
        UsageError: there is no such file.
        CorruptFile: the file holds something else.
    """
    text = source_text(source, "a capacity")
    body = check_schema(parse(read_text(text), text), SCHEMA, text)
    return decode(Capacity, {name: value for name, value in body.items() if name not in BESIDE}, text)


def capacity_notes(plan: Plan, capacity: Capacity) -> tuple[str, ...]:
    """How well the rows of a plan's tables serve the streams of their features, in sentences.

    Raises:
        UsageError: no table of the plan reads any of the features, so the capacity is for other data.
    """
    known = {each.feature: each for each in capacity.features}
    found = [
        (table, known[feature.name])
        for table in plan.workload.tables
        for feature in table.features
        if feature.name in known
    ]
    if not found:
        raise UsageError(
            f"the capacity is of {', '.join(known) or 'no feature'}, which no table of the plan reads: it is of other "
            "data; give that of the data that the plan is for"
        )
    return tuple(_note(table, each, capacity) for table, each in found)


def _note(table: Table, feature: FeatureCapacity, capacity: Capacity) -> str:
    rows, first = table.num_embeddings, feature.policies[0]
    share = served_at(feature, rows / feature.needed)
    enough = "it has enough" if rows >= feature.needed else "it has too few"
    return (
        f"Table '{table.name}' has {rows:,} rows, which serve {share:.1%} of the lookups of '{feature.feature}' under "
        f"{first.policy}; {feature.needed:,} serve {100 * capacity.serve:.6g} % of what any table can: {enough}."
    )
