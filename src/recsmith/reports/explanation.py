"""Explanations of plans and tables: as text for people, and as plain data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from recsmith.analyses.alternatives import Alternative
from recsmith.analyses.explain import Explanation, PartShare, Phase, RankShare, TableAccount
from recsmith.files import Raw, encode
from recsmith.plans import PARTS, kernel_words
from recsmith.units import format_size, format_time
from recsmith.workloads import Table

EXPLANATION_SCHEMA = "recsmith/explanation/1"
MOST_TABLES, MOST_RANKS, MOST_SHARDS, MOST_WAYS = 8, 8, 8, 12


def explanation_report(explanation: Explanation) -> RenderableType:
    """What binds each phase of the step; or all about one table."""
    plan = explanation.plan
    lines = [
        _line("plan", f"{len(plan.placements)} tables on {plan.cluster.describe()}, digest {plan.digest[:16]}"),
        _line("step", _step_words(explanation)),
    ]
    if explanation.account is not None:
        return Group(*lines, *_account_words(explanation.account))
    return Group(
        *lines, *(each for i, phase in enumerate(explanation.phases) for each in _phase_words(phase, i, explanation))
    )


def _step_words(explanation: Explanation) -> str:
    bound = explanation.plan.bound.value_s if explanation.cost_model == explanation.plan.cost_model else None
    proven = f"; {format_time(bound)} proven as the least" if bound else ""
    return f"{format_time(explanation.total_s)} (cost model {explanation.cost_model}, predicted{proven})"


def _phase_words(phase: Phase, number: int, explanation: Explanation) -> Iterator[RenderableType]:
    """The slowest rank, its parts, and its dearest tables."""
    several = len(explanation.phases) > 1
    part_of = f", {phase.seconds / explanation.total_s:.0%} of the step" if several and explanation.total_s else ""
    over = f"{phase.seconds / phase.mean_s - 1:.1%} above the mean rank" if phase.mean_s else "as all ranks"
    yield Text()
    yield _line(f"phase {number + 1}" if several else "", f"{' + '.join(_part_name(p) for p in phase.parts)}{part_of}")
    yield _line("slowest", f"rank {phase.rank}: {format_time(phase.seconds)}, {over} ({format_time(phase.mean_s)})")
    for part in sorted(phase.parts, key=lambda part: -part.seconds):
        yield _line("", _part_words(part, phase))
    grid = _grid(("table", False), ("sharding", False), ("without it", True), ("", True))
    dear = [share for share in phase.tables if share.seconds > 0]
    for share in dear[:MOST_TABLES]:
        ratio = f"{-share.seconds / phase.seconds:+.1%}" if phase.seconds else ""
        grid.add_row(share.table, share.sharding_type, f"-{format_time(share.seconds)}", ratio)
    if len(dear) > MOST_TABLES:
        grid.add_row(f"… {len(dear) - MOST_TABLES} more", "", "", "")
    yield grid


def _part_name(part: PartShare) -> str:
    return part.part.removesuffix("_s").replace("_", " ")


def _part_words(part: PartShare, phase: Phase) -> str:
    fixed = [
        f"{format_time(seconds)} {what}"
        for seconds, what in ((part.launch_s, "launches"), (part.latency_s, "latency"))
        if seconds
    ]
    share = f"{part.seconds / phase.seconds:.0%}" if phase.seconds else "-"
    words = f"{share:>4} {_part_name(part)}, {format_time(part.seconds)}"
    return f"{words} (of it {' and '.join(fixed)})" if fixed else words


def _account_words(account: TableAccount) -> Iterator[RenderableType]:
    """Where a table is, what it costs, how it is read, what else it could be."""
    placement, table = account.placement, account.table
    yield _line("table", _table_words(table))
    split = f", columns {_split_words(placement.widths)}" if placement.widths else ""
    where = f"{'ranks' if len(placement.ranks) > 1 else 'rank'} {_ranks_words(placement.ranks)}"
    kernel = kernel_words(placement.compute_kernel, placement.cache)
    yield _line("placed", f"{placement.sharding_type}, kernel {kernel}{split}, on {where}")
    for shard in account.shards[:MOST_SHARDS] if len(account.shards) > 1 else ():
        yield _line("", f"rank {shard.rank}: rows {_span(shard.rows)}, columns {_span(shard.columns)}")
    if len(account.shards) > MOST_SHARDS:
        yield _line("", f"… {len(account.shards) - MOST_SHARDS} more shards")
    yield _line("access", _access_words(account))
    yield Text("\nits ranks would be faster without it by")
    yield _ranks_grid(account.ranks)
    yield Text("the step, if this table alone were laid another way")
    yield _ways_grid(account.alternatives)


def _table_words(table: Table) -> str:
    ids = sum(feature.pooling_factor * feature.num_poolings for feature in table.features)
    size = f"{table.num_embeddings:,} x {table.embedding_dim} {table.data_type}, {format_size(table.weight_bytes)}"
    return f"{table.name}: {size}; {ids:.4g} ids a sample, pooling {table.pooling}"


def _access_words(account: TableAccount) -> str:
    ids = f"{account.ids:,.0f} ids a step on each of its ranks"
    if account.unique_ratio is None:
        return f"{ids}; the workload does not say how often rows are read again"
    return f"{ids}, {account.unique_ratio:.1%} of them different rows"


def _split_words(widths: Sequence[int]) -> str:
    """Widths of column pieces: `4 x 20 + 3 x 16`."""
    return " + ".join(f"{count} x {width}" for width, count in Counter(widths).items())


def _ranks_words(ranks: Sequence[int]) -> str:
    """`3`, `0, 5, 5` or `0-95`."""
    if len(ranks) == 1:
        return f"{ranks[0]}"
    if len(ranks) > 2 and tuple(ranks) == tuple(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}-{ranks[-1]}"
    return f"{', '.join(map(str, ranks[:MOST_RANKS]))}{' …' if len(ranks) > MOST_RANKS else ''}"


def _span(span: tuple[int, int]) -> str:
    return f"{span[0]:,} to {span[1] - 1:,}"


def _ranks_grid(shares: Sequence[RankShare]) -> Grid:
    """Seconds by part on the ranks of a table, the dearest first; ranks of equal seconds share a row."""
    names = ("fwd compute", "bwd compute", "fwd comm", "bwd comm", "sum")
    grid = _grid(("ranks", False), *((name, True) for name in names))
    rows = [([getattr(share, part) for part in PARTS], share.rank) for share in shares]
    rows.sort(key=lambda row: (-sum(row[0]), row[1]))
    alike = [(words, [rank for _, rank in same]) for words, same in groupby(rows, key=lambda row: _times(row[0]))]
    for words, ranks in alike[:MOST_RANKS]:
        grid.add_row(_ranks_words(ranks), *words)
    if len(alike) > MOST_RANKS:
        grid.add_row(f"… {len(alike) - MOST_RANKS} more", *[""] * len(names))
    return grid


def _times(seconds: Sequence[float]) -> tuple[str, ...]:
    return *map(format_time, seconds), format_time(sum(seconds))


def _ways_grid(ways: Sequence[Alternative]) -> Grid:
    """The cheapest ways, the present one, and the best of each type; those that differ in type alone share a row."""
    columns = (("", False), ("sharding", False), ("columns", False), ("kernel", False), ("ranks", False))
    grid = _grid(*columns, ("step", True), ("change", True))
    rows = [list(alike) for _, alike in groupby(ways, key=_looks)]
    kinds: set[str] = set()
    hidden = 0
    for i, alike in enumerate(rows):
        new = {way.sharding_type for way in alike} - kinds
        kinds |= new
        if i < MOST_WAYS or new or alike[0].current:
            grid.add_row(*_way_row(alike))
        else:
            hidden += 1
    if hidden:
        grid.add_row("", f"… {hidden} more splits of these", *[""] * 5)
    return grid


def _looks(way: Alternative) -> tuple[object, ...]:
    return way.current, way.compute_kernel, way.cache, way.widths, way.ranks, way.change


def _way_row(alike: Sequence[Alternative]) -> tuple[str, ...]:
    way = alike[0]
    types, kernel = ", ".join(each.sharding_type for each in alike), kernel_words(way.compute_kernel, way.cache)
    layout = types, _split_words(way.widths) or "whole", kernel
    if way.total_s is None or way.change is None:
        return "", *layout, "no room", "", ""
    change = "as it is" if way.current else f"{way.change:+.2%}" if way.change < 10 else f"x {way.change + 1:,.0f}"
    return "»" if way.current else "", *layout, _ranks_words(way.ranks), format_time(way.total_s), change


def explanation_to_raw(explanation: Explanation) -> Raw:
    """Plain data of an explanation: schema recsmith/explanation/1. Bound and gap are null under another cost model."""
    plan = explanation.plan
    same = explanation.cost_model == plan.cost_model
    return {
        "schema": EXPLANATION_SCHEMA,
        "digest": plan.digest,
        "cost_model": explanation.cost_model,
        "total_s": explanation.total_s,
        "bound_s": plan.bound.value_s if same else None,
        "gap": plan.gap if same else None,
        "phases": [encode(phase) for phase in explanation.phases],
        "account": None if explanation.account is None else encode(explanation.account),
    }


def _grid(*columns: tuple[str, bool]) -> Grid:
    """A grid with these headings; True stands at the right."""
    grid = Grid(box=SIMPLE, pad_edge=False)
    for name, right in columns:
        grid.add_column(name, justify="right" if right else "left")
    return grid


def _line(word: str, text: str) -> Text:
    return Text.assemble((f"{word:<9}", "bold"), text)
