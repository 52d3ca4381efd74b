"""Explained plans: what limits each phase of a step, or one table in detail; as text, and as plain data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from recsmith.analyses.alternatives import Alternative
from recsmith.analyses.cache_curve import CacheCurve, cache_curve
from recsmith.analyses.explain import Explanation, PartShare, Phase, RankShare, TableAccount
from recsmith.analyses.hot_rows import Instead
from recsmith.files import Raw, encode
from recsmith.plans import PARTS, describe_kernel
from recsmith.reports.dynamic_tables import dynamic_words, table_words
from recsmith.reports.layout import Grid, add_first, grid, line
from recsmith.reports.plan_words import drawn_words, rest_words, sequences_words, with_copies_words
from recsmith.reports.plans import error_line, model_words, part_words
from recsmith.units import counted, format_size, format_time
from recsmith.workloads import Table, Workload

EXPLANATION_SCHEMA = "recsmith/explanation/1"
ONLY_BLOCKS = (
    "TorchRec cuts rows into blocks in their order alone, and replicates whole tables alone; the data can scatter rows "
    "(`{op: scatter}` of its transforms)"
)
MOST_TABLES = 8  # rows of a phase, costliest tables first; two phases fit a screen
MOST_RANKS = 8  # rows of ranks, and ranks listed in one row: as many as a host has
MOST_SHARDS = 8  # lines of shards: as many as a host has
MOST_ALTERNATIVES = 12  # cheapest placements that are shown, in addition to the present one and the best of each type


def explanation_report(explanation: Explanation) -> RenderableType:
    """What limits each phase of the step, or one table in detail."""
    plan = explanation.plan
    lines = [
        line(
            "plan", f"{counted(len(plan.placements), 'table')} on {plan.cluster.describe()}, digest {plan.digest[:16]}"
        ),
        line("step", _step_words(explanation)),
        *error_line(explanation.published_error),
        *([line("rows", words)] if (words := sequences_words(plan)) else []),
        *([line("stash", words)] if (words := rest_words(plan)) else []),
        *([line("dynamic", words)] if (words := dynamic_words(plan)) else []),
    ]
    if explanation.account is not None:
        return Group(*lines, *account_report(explanation.account, plan.workload), *_ties_of(explanation))
    phases = (each for i, phase in enumerate(explanation.phases) for each in _phase_report(phase, i, explanation))
    more = (*_hot_rows_report(explanation), *_memory_report(explanation), *_cache_report(cache_curve(plan)))
    return Group(*lines, *phases, *more)


def _hot_rows_report(explanation: Explanation) -> Iterator[RenderableType]:
    """Tables with a block of rows that is busier than the mean because of hot rows; nothing if there are none."""
    for i, each in enumerate(explanation.hot_rows[:MOST_TABLES]):
        if i == 0:
            yield Text()
        share = f" ({each.seconds / explanation.total_s:.1%} of the step)" if explanation.total_s else ""
        yield line(
            "hot rows",
            f"the busiest block of '{each.table}' has {each.times:.2f} times the mean lookups, which costs "
            f"{format_time(each.seconds)}{share}",
        )
        if each.instead:
            yield _instead_grid(each.instead)
    if len(explanation.hot_rows) > MOST_TABLES:
        yield line("", f"… {len(explanation.hot_rows) - MOST_TABLES:,} more tables")
    if explanation.hot_rows:
        yield line("", ONLY_BLOCKS)


def _instead_grid(ways: Sequence[Instead]) -> Grid:
    """Alternatives to splitting a table into blocks of rows in their order, from the cheapest to the costliest."""
    made = grid(left=("instead", "columns", "ranks"), right=("step", "change"))
    for each in ways:
        columns = _split_words(each.widths) or "whole"
        if each.total_s is None or each.change is None:
            made.add_row(each.way, columns, "no room", "", "")
        else:
            made.add_row(each.way, columns, _ranks_words(each.ranks), format_time(each.total_s), f"{each.change:+.2%}")
    return made


def _memory_report(explanation: Explanation) -> Iterator[RenderableType]:
    """Memory of the fullest rank, and how much of it exceeds what a mean batch needs."""
    found, drawn = explanation.fullest, drawn_words(explanation.plan)
    if found is None:
        return
    yield Text()
    share = f"{format_size(found.bytes)} of {format_size(found.capacity)} ({found.bytes / found.capacity:.0%})"
    over = f", {format_size(found.over_mean_bytes)} of them more than a mean batch takes" if drawn else ""
    batch = f"{format_size(found.batch_bytes)} are ids, outputs and temporaries{over}"
    yield line("memory", f"rank {found.rank} is fullest: {share}, of which {batch}")
    if drawn:
        yield line("", drawn)


def _cache_report(curve: CacheCurve | None) -> Iterator[RenderableType]:
    """Predicted hit rates of caches of other sizes; nothing if no table has a cache."""
    if curve is None:
        return
    yield Text()
    hits = f"{curve.planned_hits:.1%} of the lookups of {counted(curve.tables, 'table')} hit"
    yield line("caches", f"{hits} caches of {format_size(curve.planned_bytes)} of weights ({curve.policy}), predicted")
    names = ("cached", "weights", "lru hits", *(["static hits"] if curve.points[0].static is not None else []))
    made = grid(right=names)
    for point in curve.points:
        static = [] if point.static is None else [f"{point.static:.1%}"]
        made.add_row(f"{point.share:.1%}", format_size(point.bytes), f"{point.lru:.1%}", *static)
    yield made


def _ties_of(explanation: Explanation) -> Iterator[RenderableType]:
    """How many alternative placements of a table differ from its own by less than the cost model's error."""
    found, account = explanation.published_error, explanation.account
    others = [each for each in account.alternatives if not each.current] if account else []
    changes = [abs(each.change) for each in others if each.change is not None]
    if found is not None and (tied := sum(map(found.ties, changes))):
        count = counted(tied, "placement is", "placements are")
        yield line("ties", f"{count} closer to the plan's step than {found.apart}: the model cannot tell them apart")


def _step_words(explanation: Explanation) -> str:
    plan = explanation.plan
    bound = plan.bound.of_step(plan.cost) if explanation.cost_model == plan.cost_model else None
    proven = f"; {format_time(bound)} proven under it as the least" if bound else ""
    model = model_words(explanation.cost_model, explanation.plan)
    return f"{with_copies_words(plan, explanation.total_s)} (cost model {model}, predicted{proven})"


def _phase_report(phase: Phase, number: int, explanation: Explanation) -> Iterator[RenderableType]:
    """The slowest rank of a phase, its parts, and its costliest tables."""
    several = len(explanation.phases) > 1
    part_of = f", {phase.seconds / explanation.total_s:.0%} of the step" if several and explanation.total_s else ""
    over = f"{phase.seconds / phase.mean_s - 1:.1%} above the mean rank" if phase.mean_s else "as all ranks"
    parts = " + ".join(part_words(each.part) for each in phase.parts)
    yield Text()
    yield line(f"phase {number + 1}" if several else "", f"{parts}{part_of}")
    yield line("slowest", f"rank {phase.rank}: {format_time(phase.seconds)}, {over} ({format_time(phase.mean_s)})")
    for part in sorted(phase.parts, key=lambda part: -part.seconds):
        yield line("", _share_words(part, phase))
    made = grid(left=("table", "sharding"), right=("without it", ""))
    add_first(made, _table_rows(phase), MOST_TABLES)
    yield made


def _share_words(part: PartShare, phase: Phase) -> str:
    fixed = [
        f"{format_time(seconds)} {what}"
        for seconds, what in ((part.launch_s, "launches"), (part.latency_s, "latency"))
        if seconds
    ]
    share = f"{part.seconds / phase.seconds:.0%}" if phase.seconds else "-"
    text = f"{share:>4} {part_words(part.part)}, {format_time(part.seconds)}"
    return f"{text} (of it {' and '.join(fixed)})" if fixed else text


def _table_rows(phase: Phase) -> list[tuple[str, ...]]:
    """Seconds that the slowest rank saves without each table, costliest first; tables without cost are omitted."""
    rows: list[tuple[str, ...]] = []
    for share in phase.tables:
        if share.seconds > 0:
            ratio = f"{-share.seconds / phase.seconds:+.1%}" if phase.seconds else ""
            rows.append((share.table, share.sharding_type, f"-{format_time(share.seconds)}", ratio))
    return rows


def explanation_to_raw(explanation: Explanation) -> Raw:
    """An explanation as plain data: schema recsmith/explanation/1. Bound and gap are null under another cost model."""
    plan = explanation.plan
    same = explanation.cost_model == plan.cost_model
    return {
        "schema": EXPLANATION_SCHEMA,
        "digest": plan.digest,
        "cost_model": explanation.cost_model,
        "total_s": explanation.total_s,
        "bound_s": plan.bound.of_step(plan.cost) if same else None,
        "gap": plan.gap if same else None,
        **({"sequences_s": explanation.sequences_s} if explanation.sequences_s else {}),
        "phases": [encode(phase) for phase in explanation.phases],
        "account": None if explanation.account is None else encode(explanation.account),
        **({"hot_rows": [encode(each) for each in explanation.hot_rows]} if explanation.hot_rows else {}),
        **({} if explanation.fullest is None else {"fullest": encode(explanation.fullest)}),
        **({} if explanation.published_error is None else {"published_error": encode(explanation.published_error)}),
        **({} if (curve := cache_curve(plan)) is None else {"caches": encode(curve)}),
    }


def account_report(account: TableAccount, workload: Workload) -> Iterator[RenderableType]:
    """A table's placement, cost and accesses, and its alternative placements."""
    placement = account.placement
    yield line("table", _table_words(account.table, workload))
    split = f", columns {_split_words(placement.widths)}" if placement.widths else ""
    where = f"{'ranks' if len(placement.ranks) > 1 else 'rank'} {_ranks_words(placement.ranks)}"
    kernel = describe_kernel(placement.compute_kernel, placement.cache)
    yield line("placed", f"{placement.sharding_type}, kernel {kernel}{split}, on {where}")
    for shard in account.shards[:MOST_SHARDS] if len(account.shards) > 1 else ():
        yield line("", f"rank {shard.rank}: rows {_span_words(shard.rows)}, columns {_span_words(shard.columns)}")
    if len(account.shards) > MOST_SHARDS:
        yield line("", f"… {len(account.shards) - MOST_SHARDS:,} more shards")
    if account.table.dynamic is not None:
        yield line("dynamic", f"ids without end: {table_words(account.table)}; {account.table.dynamic.rule}")
    yield line("access", _access_words(account))
    yield Text("\nits ranks would be faster without it by")
    yield _ranks_grid(account.ranks)
    yield Text("the step, if this table alone were placed differently")
    yield _alternatives_grid(account.alternatives)


def _table_words(table: Table, workload: Workload) -> str:
    ids = workload.ids_a_sample(table)
    size = f"{table.num_embeddings:,} x {table.embedding_dim} {table.data_type}, {format_size(table.weight_bytes)}"
    return f"{table.name}: {size}; {ids:.4g} {'id' if ids == 1 else 'ids'} a sample, pooling {table.pooling}"


def _access_words(account: TableAccount) -> str:
    ids = f"{account.ids:,.0f} ids a step on each of its ranks"
    if account.unique_ratio is None:
        return f"{ids}; the workload does not say how often rows are read again"
    return f"{ids}, {account.unique_ratio:.1%} of them different rows"


def _split_words(widths: Sequence[int]) -> str:
    """Widths of column pieces, such as `4 x 20 + 3 x 16`."""
    return " + ".join(f"{count} x {width}" for width, count in Counter(widths).items())


def _ranks_words(ranks: Sequence[int]) -> str:
    """Ranks in words, such as `3`, `0, 5, 5` or `0-95`."""
    if len(ranks) == 1:
        return f"{ranks[0]}"
    if len(ranks) > 2 and tuple(ranks) == tuple(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}-{ranks[-1]}"
    return f"{', '.join(map(str, ranks[:MOST_RANKS]))}{' …' if len(ranks) > MOST_RANKS else ''}"


def _span_words(span: tuple[int, int]) -> str:
    return f"{span[0]:,} to {span[1] - 1:,}"


def _ranks_grid(shares: Sequence[RankShare]) -> Grid:
    """Seconds by part on a table's ranks, the costliest first; ranks with equal printed seconds share a row."""
    made = grid(left=("ranks",), right=("fwd compute", "bwd compute", "fwd comm", "bwd comm", "sum"))
    costs = [([getattr(share, part) for part in PARTS], share.rank) for share in shares]
    costs.sort(key=lambda cost: (-sum(cost[0]), cost[1]))
    equal = [(cells, [rank for _, rank in same]) for cells, same in groupby(costs, key=lambda cost: _times(cost[0]))]
    add_first(made, [(_ranks_words(ranks), *cells) for cells, ranks in equal], MOST_RANKS)
    return made


def _times(seconds: Sequence[float]) -> tuple[str, ...]:
    """Formatted times, followed by their formatted sum."""
    return *map(format_time, seconds), format_time(sum(seconds))


def _alternatives_grid(alternatives: Sequence[Alternative]) -> Grid:
    """The cheapest alternatives, the present one, and each type's best; those that differ only in type share a row."""
    made = grid(left=("", "sharding", "columns", "kernel", "ranks"), right=("step", "change"), optional=("kernel",))
    rows = [list(same) for _, same in groupby(alternatives, key=_all_but_type)]
    shown: set[str] = set()
    hidden = 0
    for i, same in enumerate(rows):
        new = {each.sharding_type for each in same} - shown
        shown |= new
        if i < MOST_ALTERNATIVES or new or same[0].current:
            made.add_row(*_alternative_row(same))
        else:
            hidden += 1
    if hidden:
        made.add_row("", f"… {hidden} more splits of these")
    return made


def _all_but_type(option: Alternative) -> tuple[object, ...]:
    return option.current, option.compute_kernel, option.cache, option.widths, option.ranks, option.change


def _alternative_row(same: Sequence[Alternative]) -> tuple[str, ...]:
    """One row for alternatives that differ only in their sharding type."""
    option = same[0]
    kernel = describe_kernel(option.compute_kernel, option.cache)
    layout = ", ".join(each.sharding_type for each in same), _split_words(option.widths) or "whole", kernel
    if option.total_s is None or option.change is None:
        return "", *layout, "no room", "", ""
    factor = option.change + 1
    change = "as it is" if option.current else f"{option.change:+.2%}" if option.change < 10 else f"x {factor:,.0f}"
    mark = "»" if option.current else ""
    return mark, *layout, _ranks_words(option.ranks), format_time(option.total_s), change
