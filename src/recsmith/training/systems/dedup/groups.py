"""Which features of a run are deduplicated, and which of their tables share a collection; without torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recsmith.data import Batch, DataSchema
from recsmith.data.deduplication import DedupGroup, chosen, counted, dedup_groups
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.prediction.dedup import DedupPrice, dedup_price
from recsmith.training.run import Run, RunTable
from recsmith.training.run.refusals import check_together, data_parts
from recsmith.training.run.tables import shared_features, tables_of
from recsmith.training.sources import BatchSource, first_batch
from recsmith.training.systems.dedup.deciding import asked_gain, ranks_of_job
from recsmith.units import counted as counted_of

TRIED = 8  # most thresholds of the repetition factor that are tried; features above one are deduplicated


@dataclass(frozen=True)
class Deduplication:
    """How a run's features are deduplicated; empty if none is.

    groups: features that share their rows. parts: features that are looked up in one collection. factors: for each
    feature, the samples per row of its part's batch, and per row of the feature itself. lines: lines on what it saves,
    or why auto leaves it out.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()
    factors: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    lines: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether any feature is deduplicated."""
        return bool(self.parts)


def deduplication_of(run: Run, source: BatchSource) -> Deduplication:
    """Which features a run deduplicates, counted in the first batch of a rank; with auto, if the predicted step pays.

    Raises:
        UsageError: the run names a feature that the data lacks, or twice, or some but not all features of a table, or
            also compresses tables.
    """
    wanted = run.data.deduplicate
    if wanted == "off":
        return Deduplication()
    check_together(data_parts(run))
    sample = first_batch(source, run.data.largest_batch, shuffle=run.data.shuffle)
    tables = tables_of(run.model, source.schema)
    if wanted == "auto":
        return _auto(run, source, sample, tables)
    _check_names(wanted, source.schema)
    groups = tuple(counted(sample, names) for names in wanted)
    found = _arranged(groups, tables, whole=True)
    return replace(found, lines=(_told(found, _price(found, groups, tables, len(sample))),)) if found else found


def _auto(run: Run, source: BatchSource, sample: Batch, tables: Sequence[RunTable]) -> Deduplication:
    """The features that save most, if their predicted step is short enough; else none, and why."""
    if twice := shared_features(tables):
        why = f"deduplicate: several tables look '{twice[0]}' up, so data.deduplicate, which is auto, is off"
        return Deduplication(lines=(why,))
    found, price = _likeliest(chosen(dedup_groups(sample)), tables, len(sample), ranks_of_job(run))
    if not found:
        return Deduplication(lines=("deduplicate: no feature repeats its bags",))
    text = _told(found, price)
    if price.added_s >= price.saved_s:
        return Deduplication(lines=(f"{text}, which is not less; so data.deduplicate, which is auto, is off",))
    asked = asked_gain(run, source, found.groups)
    text = f"{text}; {asked}; so data.deduplicate, which is auto, is {'on' if asked.pays else 'off'}"
    return replace(found, lines=(text,)) if asked.pays else Deduplication(lines=(text,))


def _likeliest(
    groups: Sequence[DedupGroup], tables: Sequence[RunTable], samples: int, readers: int
) -> tuple[Deduplication, DedupPrice]:
    """(deduplicated features, seconds they save and add) with the largest net saving.

    First the features that repeat most often are tried alone, then features that repeat less often are added.
    """
    best = Deduplication(), DedupPrice(saved_s=0.0, added_s=0.0)
    for least in _few(sorted({each.factor for each in groups}, reverse=True)):
        some = [each for each in groups if each.factor >= least]
        found = _arranged(some, tables, whole=False)
        price = _price(found, some, tables, samples, readers)
        if found and (not best[0] or price.saved_s - price.added_s > best[1].saved_s - best[1].added_s):
            best = found, price
    return best


def _few(factors: Sequence[float]) -> list[float]:
    """At most TRIED of these sorted factors, evenly spread, with the first and the last."""
    places = {round(place * (len(factors) - 1) / (TRIED - 1)) for place in range(TRIED)}
    return [factors[place] for place in sorted(places)] if factors else []


def _price(
    found: Deduplication, groups: Sequence[DedupGroup], tables: Sequence[RunTable], samples: int, readers: int = 1
) -> DedupPrice:
    """Seconds that the deduplicated features among these groups save and add."""
    widths = {name: table.embedding_dim or 0 for table in tables for name in table.features}
    some = [each for each in groups if set(each.features) <= found.factors.keys()]
    return dedup_price(some, widths, samples, len(found.parts), readers)


def _told(found: Deduplication, price: DedupPrice) -> str:
    return f"deduplicate: {counted_of(len(found.factors), 'feature')} of distinct bags alone; {price}"


def _arranged(groups: Sequence[DedupGroup], tables: Sequence[RunTable], *, whole: bool) -> Deduplication:
    """The groups' features in parts that repeat about equally often.

    whole: raise UsageError if only some features of a table are named; otherwise such a table is left out.
    """
    by_feature = {name: group for group in groups for name in group.features}
    of_all = min((group.factor for group in groups), default=1.0)
    levels: dict[int, list[str]] = {}
    for table in tables:
        found = [by_feature[name] for name in table.features if name in by_feature]
        if len(found) == len(table.features):
            levels.setdefault(min(group.level(of_all) for group in found), []).extend(table.features)
        elif found and whole:
            lacking = next(name for name in table.features if name not in by_feature)
            raise UsageError(
                f"table '{table.name}' is looked up by '{lacking}' too, which data.deduplicate does not name; name all "
                "features of a table, or none"
            )
    parts = tuple(tuple(levels[level]) for level in sorted(levels))
    kept = {name for part in parts for name in part}
    least = {name: min(by_feature[each].factor for each in part) for part in parts for name in part}
    return Deduplication(
        groups=tuple(names for group in groups if (names := tuple(n for n in group.features if n in kept))),
        parts=parts,
        factors={name: (least[name], by_feature[name].factor) for name in kept},
    )


def _check_names(groups: Sequence[Sequence[str]], schema: DataSchema) -> None:
    known, seen = schema.feature_names, set[str]()
    for name in (name for group in groups for name in group):
        if name not in known:
            raise UsageError(
                f"data.deduplicate names '{name}', which the data does not have{did_you_mean(name, list(known))}"
            )
        if name in seen:
            raise UsageError(f"data.deduplicate names '{name}' twice; each feature is in one group")
        seen.add(name)
