"""Finds faults of a job that counts show with certainty; each is reported once per episode, with its numbers.

Baselines are moving means over looks without the fault. A look is an examined step, one in every few (job_signals.py).
"""

import math
from collections.abc import Iterator
from typing import Any

from recsmith.streaming.column_levels import ColumnFault, ColumnLevels
from recsmith.streaming.detectors.plain_state import PlainState, places_of
from recsmith.streaming.frequent_ids import FrequentIds
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.likely_causes import with_cause

UNLIKELY = 1e-6  # probability of an observation in a healthy job, below which it is a fault
LEARN = 0.05  # weight of a look in a baseline
LOOKS = 8  # looks that a baseline needs before it is used
CALM = 12  # looks without a fault after which the fault is reported again
AGAINST = -4.5  # correlation of predictions and labels, in deviations, below which labels are flipped
JUMP = 3.0  # factor of a learning rate between two looks that no schedule has
STEADY = 4  # looks in which a learning rate was constant before; also looks whose repeats and correlations are pooled
FEW = 5  # least number of repeated samples that is a fault
LATE, LATE_LOOKS = 0.25, 6  # share of a step for which the other ranks wait for one; looks of which the median is taken
EMPTIED = ("constant_feature", "empty_feature")
OF_COLUMN = (*EMPTIED, "constant_dense", "missing_values", "dense_mean", "dense_spread", "bag_length", "frequent_id",
             "new_ids", "hot_set", "joined_rows")  # fmt: skip
# of these kinds, only the first that is seen in a column is reported; further ones are the same fault
OF_REPEATS = ("hot_set", "new_ids", "joined_rows", "bag_length")  # kinds that repeated samples also cause
PATIENCE = 2  # looks for which a change of the hot set is held back, as a single id that causes it is found later
Seen = tuple[str, str, str]  # (kind, of what, because)


class Causes(PlainState):
    """Detects constant and empty features, repeated samples, flipped labels, jumps of learning rates and slow ranks.

    It also detects changes of labels, dense columns and features (column_levels.py).
    """

    STATE = ("_base", "_calm", "_looks", "_against", "_repeats", "_rates", "_late", "levels", "frequent", "_waiting")

    def __init__(self, layout: JobLayout) -> None:
        self.layout = layout
        self.levels, self.frequent = ColumnLevels(layout), FrequentIds(len(layout.features))
        self._base: dict[str, float] = {}
        self._calm: dict[str, int] = {}  # looks since a fault was last seen, by kind and subject
        self._looks = 0
        self._against: list[float] = []  # correlations of the last looks, in deviations
        self._repeats: list[list[float]] = []  # [checked, repeated] of the last looks
        self._rates: dict[str, list[float]] = {}  # [rate, number of looks in which it was constant]
        self._late: list[list[float]] = []  # [slowest rank, its delay as a share of the step] of the last looks
        self._waiting: dict[str, list[Any]] = {}  # [looks, fault] by feature, of hot-set changes that are held back

    def look(self, sums: JobSums) -> list[ColumnFault]:
        """Faults that this look shows and that were not seen in the last CALM looks."""
        self._looks += 1
        self._calm = {fault: looks + 1 for fault, looks in self._calm.items() if looks < CALM}
        found: list[ColumnFault] = []
        for fault in self._faults(sums):
            if self._explained(fault.kind):
                continue
            if not self._known_already(fault.kind, fault.of):
                found.append(fault)
            self.tell(fault.kind, fault.of)
        return found

    def forget_job(self) -> None:
        """Keep only the baselines of the data; forget reported faults, learning rates and ranks."""
        self._calm, self._rates, self._late, self._waiting = {}, {}, [], {}

    def relaid(self, layout: JobLayout) -> None:
        """Continue with other columns or another plan."""
        before, self.layout = self.layout, layout
        if (before.features, before.dense) != (layout.features, layout.dense):
            self.levels = self.levels.with_layout(layout)
            self.frequent = self.frequent.with_features(places_of(layout.features, before.features))

    def tell(self, kind: str, of: str) -> None:
        """Note that a fault was seen, here or by another detector."""
        self._calm[f"{kind}:{of}"] = 0

    def _known_already(self, kind: str, of: str) -> bool:
        """Whether the fault, or a related one of the same column, was seen recently."""
        return any(f"{each}:{of}" in self._calm for each in (OF_COLUMN if kind in OF_COLUMN else (kind,)))

    def _explained(self, kind: str) -> bool:
        """Whether the fault follows from a recently seen fault that is not of its column."""
        if kind in ("label_rate", "joined_rows") and "flipped_labels:" in self._calm:
            return True
        if kind in OF_REPEATS and "repeated_samples:" in self._calm:
            return True
        return kind == "joined_rows" and any(each.startswith("label_rate:") for each in self._calm)

    def broken(self, feature: str) -> bool:
        """Whether a feature is constant or empty, or one id dominates it, so that its hot set gives no further news."""
        return any(f"{kind}:{feature}" in self._calm for kind in (*EMPTIED, "frequent_id"))

    def _faults(self, sums: JobSums) -> Iterator[ColumnFault]:
        for kind, of, because in self._certain(sums):
            yield ColumnFault(kind, of, with_cause(because, kind))
        for fault in self.levels.faults(sums):
            if fault.kind != "hot_set":
                if fault.kind != "joined_rows" or fault.of not in self._waiting:
                    yield fault
            elif fault.of not in self._waiting:
                self._waiting[fault.of] = [-1, list(fault)]
        for name, (looks, fault) in list(self._waiting.items()):
            self._waiting[name] = [looks + 1, fault]
            if looks + 1 >= PATIENCE:
                del self._waiting[name]
                kind, of, because, run, then = fault
                yield ColumnFault(kind, of, because, run + PATIENCE, then)

    def _certain(self, sums: JobSums) -> Iterator[Seen]:
        for row, name in enumerate(self.layout.features):
            yield from self._feature(name, sums.of_feature(row))
        for row, name in enumerate(self.layout.dense):
            yield from self._dense(name, sums["rows"], *sums.dense[row, :2].tolist())
        yield from self._repeated(sums)
        yield from self._flipped(sums)
        for name in ("dense", "sparse"):
            yield from self._rate(name, sums[f"{name}_rate"])
        yield from self._slow(sums)
        for row, found, share in self.frequent.look(sums):
            name = self.layout.features[row]
            text = f"{share:.0%} more of the ids of feature '{name}' than before are {found}"
            yield "frequent_id", name, text

    def _learned(self, key: str, value: float) -> float | None:
        """The baseline of `key` before this look, or None if it is not known yet; then the value is learned."""
        count = self._base.get(f"{key}/looks", 0)
        before = self._base.get(key, value)
        self._base[key] = before + (value - before) * max(LEARN, 1 / (count + 1))
        self._base[f"{key}/looks"] = count + 1
        return before if count >= LOOKS else None

    def _known(self, key: str) -> float | None:
        """The baseline of `key`; None if it is not known yet."""
        return self._base[key] if self._base.get(f"{key}/looks", 0) >= LOOKS else None

    def _feature(self, name: str, row: dict[str, float]) -> Iterator[Seen]:
        """The fault of a feature that has become empty or holds a single id."""
        if not row["bags"]:
            return
        length, same = row["lookups"] / row["bags"], row["same"] / max(row["pairs"], 1)
        usual = self._known(f"length:{name}")
        if not row["lookups"] and usual is not None and math.exp(-usual * row["bags"]) < UNLIKELY:
            yield "empty_feature", name, f"feature '{name}' has no ids any more, and had {usual:.3g} a sample before"
            return
        usual = self._known(f"same:{name}")
        alike = row["pairs"] and row["same"] == row["pairs"]
        if alike and usual is not None and usual ** row["pairs"] < UNLIKELY:
            value = row["total"] / (row["sampled"] or row["pairs"] + 1)
            yield "constant_feature", name, f"all ids of feature '{name}' are {value:.0f}"
            return
        self._learned(f"length:{name}", length)
        if row["pairs"]:
            self._learned(f"same:{name}", same)

    def _dense(self, name: str, samples: float, total: float, squares: float) -> Iterator[Seen]:
        """The fault of a dense column that has become constant."""
        if samples < LOOKS:
            return
        mean = total / samples
        spread = max(squares / samples - mean * mean, 0.0)
        usual = self._known(f"dense:{name}")
        if usual and spread < UNLIKELY * usual:
            yield "constant_dense", name, f"all values of dense column '{name}' are {mean:.4g}"
        else:
            self._learned(f"dense:{name}", spread)

    def _repeated(self, sums: JobSums) -> Iterator[Seen]:
        """The fault of samples that are repeated within an epoch."""
        self._repeats = [*self._repeats, [sums["checked"], sums["repeated"]]][-STEADY:]
        checked, repeated = (sum(part) for part in zip(*self._repeats, strict=True))
        share = repeated / max(checked, 1)
        usual = self._known("repeated")
        if repeated >= FEW and usual is not None and share > 0.02 + 10 * usual:
            text = f"{share:.0%} of the samples that were checked have been trained on before, in this epoch"
            yield "repeated_samples", "", text
        else:
            self._learned("repeated", share)

    def _flipped(self, sums: JobSums) -> Iterator[Seen]:
        """The fault of labels that oppose the predictions, although they agreed before."""
        samples = max(sums["samples"], 1.0)
        label, predicted = sums["label"] / samples, sums["predicted"] / samples
        spread = (label - label * label) * (sums["predicted_2"] / samples - predicted * predicted)
        if spread <= 1e-12:
            return
        together = (sums["label_predicted"] / samples - label * predicted) / math.sqrt(spread)
        deviations = together * math.sqrt(samples)
        self._against = [*self._against, deviations][-STEADY:]
        usual = self._known("together")
        several = sum(self._against) / math.sqrt(len(self._against))
        if usual is not None and usual > 1 and min(deviations, several) < AGAINST:
            text = f"correlation {together:.2f}, {-deviations:.0f} deviations below none"
            yield "flipped_labels", "", f"labels oppose the predictions ({text})"
        else:
            self._learned("together", deviations)

    def _rate(self, name: str, rate: float) -> Iterator[Seen]:
        """The fault of a constant learning rate that has jumped up."""
        before, steady = self._rates.get(name, [rate, 0])
        if rate >= JUMP * before > 0 and steady >= STEADY:
            text = f"the learning rate of the {'tables' if name == 'sparse' else 'dense layers'} is {rate:g}"
            yield "learning_rate", name, f"{text}, {rate / before:.3g} times what it was"
        self._rates[name] = [rate, steady + 1 if rate == before else 0]

    def _slow(self, sums: JobSums) -> Iterator[Seen]:
        """The fault of a slow rank, for which all other ranks wait."""
        own, step_s = sums.ranks[:, 2].tolist(), float(sums.ranks[:, 0].max())
        if len(own) < 2 or step_s <= 0:
            return
        slowest = max(range(len(own)), key=own.__getitem__)
        others = sorted(own[:slowest] + own[slowest + 1 :])
        late = own[slowest] - others[len(others) // 2]
        self._late = [*self._late, [slowest, late / step_s]][-LATE_LOOKS:]
        mine = sorted(part for rank, part in self._late if rank == slowest)
        if len(mine) >= LATE_LOOKS - 1 and mine[len(mine) // 2] > LATE:
            waiting = " for data" if sums.ranks[slowest, 1] > own[slowest] / 2 else ""
            text = f"its own work{waiting} takes {own[slowest] * 1e3:.1f} ms of a step of {step_s * 1e3:.1f} ms"
            yield (
                "slow_rank",
                str(slowest),
                f"rank {slowest} is slow: {text}, that of others {others[len(others) // 2] * 1e3:.1f} ms",
            )
