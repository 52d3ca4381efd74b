"""Makes samples of events block by block: a target with its user's events of strictly earlier times.

E events, B samples of a block
"""

import hashlib
import json

import numpy as np

from recsmith._random import buckets, salt
from recsmith._types import Ints
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.sequences.events import read_events
from recsmith.data.sequences.spec import SHARES, SequencesSpec
from recsmith.data.source import SampleBlock
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.units import counted

BLOCK = 4096  # targets in a block
DRAWN = "items by number of their sample"  # part of the digest; change it with the drawing, so that no job resumes
RAW = "items that occur"  # the same for raw ids
SPARSE = 4  # item ids are raw if fewer than 1 in SPARSE ids up to the largest occurs: only occurring ids are then drawn
TRIES = 8  # draws of a negative item; the last one is used even if the user had the item
HISTORY, ACTIONS, TIMES, TARGET, TARGET_TIME, USER = "history", "actions", "times", "target", "target_time", "user"
NEXT = "next"


class SequencesSource:
    """The samples of a spec in order of their targets' times; histories are sliced from the events when read."""

    settings = SequencesSpec
    files: tuple[tuple[int, int], ...] = ()
    max_corrupt = 0

    def __init__(self, spec: SequencesSpec) -> None:
        self.spec, self.events = spec, read_events(spec)
        events = self.events
        begins = np.searchsorted(events.users, events.users)  # the first event of the same user
        ties = np.ones(len(events.users), np.bool_)
        ties[1:] = (np.diff(events.times) != 0) | (np.diff(events.users) != 0)
        before = np.maximum.accumulate(np.where(ties, np.arange(len(ties)), 0))  # first event of the same user and time
        self._begins = np.maximum(begins, before - spec.longest)
        self._ends = before
        enough = before - begins >= spec.least
        self.left_out = int((~enough).sum())
        self._targets = self._of_split(np.flatnonzero(enough))
        if not len(self._targets):
            raise UsageError(
                f"no target is left: {counted(self.left_out, 'event')} of {len(enough):,} have fewer than {spec.least} "
                f"events of their user before them, and split is {spec.split}; give a smaller `least`, or another split"
            )
        self._user = np.cumsum(np.diff(events.users, prepend=events.users[:1]) != 0)  # dense user number of each event
        self._items = self._had = np.zeros(0, np.int64)  # items to draw from if ids are raw; (user, item) pairs
        if spec.negatives or spec.candidates:
            items, number = np.unique(events.items, return_inverse=True)
            if spec.files and spec.files.num_items is None and len(items) * SPARSE < events.num_items:
                self._items = items
            number = number if len(self._items) else events.items
            self._had = np.unique(self._user * np.int64(len(self._items) or events.num_items) + number)
        self.samples_per_target = 1 + spec.negatives
        self.num_samples = len(self._targets) * self.samples_per_target
        self.schema = self._schema()
        self.note = self._note()
        self.part = "" if spec.split == "all" else f"split {spec.split}: {len(self._targets):,} targets"

    def _of_split(self, targets: Ints) -> Ints:
        """The targets of the split, in order of their times."""
        low, high = SHARES[self.spec.split]
        if self.spec.split_by == "last":
            users = self.events.users[targets]
            ends = np.searchsorted(users, users, side="right")
            left = ends - 1 - np.arange(len(targets))  # targets of the user after this one
            wanted = {"test": left == 0, "valid": left == 1, "train": left > 1, "all": left >= 0}[self.spec.split]
            targets = targets[wanted]
            low, high = 0.0, 1.0
        ordered = targets[np.argsort(self.events.times[targets], kind="stable")]
        return ordered[round(low * len(ordered)) : round(high * len(ordered))]

    def _schema(self) -> DataSchema:
        events = self.events
        lengths = self._ends[self._targets] - self._begins[self._targets]
        mean = float(lengths.mean())
        acted = [] if events.actions is None else [
            DataFeature(name=ACTIONS, num_embeddings=events.num_actions, pooling_factor=mean)]  # fmt: skip
        return DataSchema(
            features=(
                DataFeature(name=USER, num_embeddings=events.num_users, pooling_factor=1.0, single=True),
                DataFeature(name=HISTORY, num_embeddings=events.num_items, pooling_factor=mean),
                *acted,
                DataFeature(name=TIMES, pooling_factor=mean),
                DataFeature(
                    name=TARGET,
                    num_embeddings=events.num_items,
                    pooling_factor=1.0 + self.spec.candidates,
                    single=not self.spec.candidates,
                ),
                DataFeature(name=TARGET_TIME, pooling_factor=1.0, single=True),
            ),
            dense=(),
            labels=(NEXT,) if self.spec.negatives or self.spec.candidates else events.label_names,
        )

    def _note(self) -> str:
        notes: list[str] = []
        if self.events.out_of_order:
            many = counted(self.events.out_of_order, "event")
            notes.append(f"{many} came after a later one of their user, and were put in order of time")
        if self.left_out:
            notes.append(
                f"{counted(self.left_out, 'event')} have fewer than {counted(self.spec.least, 'event')} of their user "
                "before them, and are no targets"
            )
        return "; ".join(notes)

    @property
    def digest(self) -> str:
        """Digest of the spec without paths, the events, and the method of drawing items."""
        described = encode(self.spec)
        for source in ("files", "movielens"):
            if described.get(source):
                described[source] = {
                    key: each for key, each in described[source].items() if key not in ("path", "paths")
                }
        held = self.events.digest + json.dumps(described, sort_keys=True)
        if self.spec.negatives or self.spec.candidates:
            held += RAW if len(self._items) else DRAWN
        return hashlib.sha256(held.encode()).hexdigest()[:16]

    def sizes(self) -> Ints:
        """Number of samples in each block."""
        each = np.diff(np.append(np.arange(0, len(self._targets), BLOCK), len(self._targets)))
        return each * self.samples_per_target

    def read(self, block: int) -> SampleBlock:
        """The samples of a block: each target, followed by its negatives."""
        return self.rows(block, np.arange(int(self.sizes()[block])))

    def lengths(self, block: int, feature: str) -> Ints:
        """Number of ids of a feature in each sample of a block; no event is read."""
        targets = self._targets_of(block, np.arange(int(self.sizes()[block])))
        if feature in (HISTORY, TIMES, ACTIONS):
            return self._ends[targets] - self._begins[targets]
        return np.full(len(targets), 1 + self.spec.candidates * (feature == TARGET), np.int64)

    def _targets_of(self, block: int, rows: Ints) -> Ints:
        """Indices of the target events of a block's rows."""
        return self._targets[block * BLOCK + rows // self.samples_per_target]

    def rows(self, block: int, rows: Ints) -> SampleBlock:
        """The given samples of a block, sliced from the events."""
        events, copies = self.events, self.samples_per_target
        targets = self._targets_of(block, rows)
        begins, lengths = self._begins[targets], (self._ends[targets] - self._begins[targets]).astype(np.int32)
        ends = np.cumsum(lengths, dtype=np.int64)
        at = np.arange(int(lengths.sum(dtype=np.int64))) + np.repeat(begins - (ends - lengths), lengths)
        ones = np.ones(len(targets), np.int32)
        items, scored = events.items[targets].copy(), ones
        labels = np.ones((len(rows), 1), np.float32)
        if self.spec.negatives:
            sampled = rows % copies > 0
            items[sampled] = self._never_had(block * BLOCK * copies + rows[sampled], self._user[targets[sampled]])
            labels = (~sampled).astype(np.float32)[:, None]
        elif count := self.spec.candidates:
            numbers = ((block * BLOCK + rows)[:, None] * count + np.arange(count)).ravel()
            others = self._never_had(numbers, np.repeat(self._user[targets], count))
            items, scored = np.column_stack([items, others.reshape(-1, count)]).ravel(), ones * (1 + count)
        else:
            labels = events.labels[targets]
        ids = {
            USER: JaggedIds(values=events.users[targets], lengths=ones),
            HISTORY: JaggedIds(values=events.items[at], lengths=lengths),
            **({} if events.actions is None else {ACTIONS: JaggedIds(values=events.actions[at], lengths=lengths)}),
            TIMES: JaggedIds(values=events.times[at], lengths=lengths),
            TARGET: JaggedIds(values=items, lengths=scored),
            TARGET_TIME: JaggedIds(values=events.times[targets], lengths=ones),
        }
        return SampleBlock(
            samples=Batch(
                dense=np.zeros((len(targets), 0), np.float32), ids=ids, labels=labels, label_names=self.schema.labels,
                sample_ids=block * BLOCK * copies + rows,
            )
        )  # fmt: skip

    def _never_had(self, numbers: Ints, users: Ints) -> Ints:
        """For each user a random item that the user never had, unless TRIES draws found none.

        numbers: one per item, which determine the draws. users: dense user numbers from 0.
        """
        count = len(self._items) or self.events.num_items
        keys = users * np.int64(count)
        items = np.zeros(len(users), np.int64)
        open_ = np.arange(len(users))
        for draw in range(TRIES):
            key = np.array([salt(self.spec.seed, "items", draw)], np.uint64)
            items[open_] = buckets(numbers[open_], key, count)
            wanted = keys[open_] + items[open_]
            found = np.searchsorted(self._had, wanted)
            open_ = open_[self._had[np.minimum(found, len(self._had) - 1)] == wanted]
            if not len(open_):
                break
        return self._items[items] if len(self._items) else items

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that are not in the schema."""
        return ("timestamp",)

    def column(self, block: int, name: str) -> Ints:
        """The target's time of each sample of a block."""
        places = np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self._targets)))
        return self.events.times[np.repeat(self._targets[places], self.samples_per_target)]
