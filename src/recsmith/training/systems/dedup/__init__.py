"""Deduplicated features: only distinct bags are looked up (Zhao et al., "RecD", MLSys 2023): docs/datasets.md.

groups.py says which features are deduplicated and deciding.py whether that pays; parts.py says what it excludes.
tables.py is the torch module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recsmith._components import NAME, register
from recsmith.analyses.advice import Switch
from recsmith.plans import Plan
from recsmith.training.seams.building import TablesAsked
from recsmith.training.seams.predicting import SystemLine
from recsmith.training.seams.system import TABLES, System

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.card import ModelCard
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource

register(TABLES, "deduplicated", "recsmith.training.systems.dedup.tables:DeduplicatedTables")


class DedupSystem(System):
    """The system that looks up each distinct bag of a feature once (`data.deduplicate`)."""

    key = "data.deduplicate"
    settings = Literal["off", "auto"] | tuple[tuple[str, ...], ...]
    about = (
        "features whose distinct bags alone are looked up (docs/datasets.md): off, auto, or groups of features that "
        "change together"
    )

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """Deduplicated features, if the run asks for them."""
        said = run.data.deduplicate
        return () if said == "off" else _parts(decided=said != "auto")

    def tables(self, run: "Run", source: "BatchSource") -> TablesAsked:
        """Tables of distinct bags if features repeat bags, and which features those are if the run says `auto`."""
        from recsmith.training.systems.dedup.groups import deduplication_of

        found = deduplication_of(run, source)
        described = tuple(SystemLine(key=self.key, on=bool(found), said=line) for line in found.lines)
        if run.data.deduplicate == "auto":
            run = replace(run, data=replace(run.data, deduplicate=found.groups or "off"))
        if not found:
            return TablesAsked(run, lines=described)
        return TablesAsked(run, {NAME: "deduplicated", "deduplication": found}, described, _parts())

    def as_before(self, before: "Run", run: "Run") -> "Run":
        """The run with the deduplicated features of the checkpoint, if it leaves them to `auto`."""
        said = before.data.deduplicate
        kept = run.data.deduplicate == "auto" and said != "auto"
        return replace(run, data=replace(run.data, deduplicate=said)) if kept else run

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer to look up only distinct bags."""
        made = Switch(
            name="distinct bags alone", change="data.deduplicate: auto", settings=("data.deduplicate=auto",),
            quality="exact", page="datasets.md",
        )  # fmt: skip
        return (made,) if run.data.deduplicate == "off" else ()

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """The share of bags that was looked up, compared with the prediction."""
        if job.run.data.deduplicate == "off" or not job.features.repeats:
            return {}
        from recsmith.training.systems.dedup.tables import brought_line

        said = brought_line(job.sharded.model, job.features.repeats)
        return {} if said is None else {self.key: said}

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run without deduplication, since tables give the same vectors if all bags are looked up."""
        return replace(run, data=replace(run.data, deduplicate="off"))

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """Add the seconds of readers that find repeated bags, and of the step that copies vectors to all samples."""
        from recsmith.prediction.dedup import COLLECTION_S, finding_s, giving_s

        if run.data.deduplicate == "off":
            return step
        batch, ranks = plan.workload.batch_size, plan.cluster.job_world_size
        some = [(each, table.embedding_dim) for table in plan.workload.tables for each in table.features
                if each.batch_size is not None]  # fmt: skip
        if not some:
            return step
        ids = [each.pooling_factor * each.num_poolings for each, _ in some]
        before = ranks * batch * sum(ids)
        after = ranks * sum((each.batch_size or batch) * count for (each, _), count in zip(some, ids, strict=True))
        collections = len({each.batch_size for each, _ in some})
        given = giving_s(batch, len(some), sum(width for _, width in some)) + collections * COLLECTION_S
        return replace(
            step, reading_s=step.reading_s + finding_s(before, after), embeddings_s=step.embeddings_s + given
        )  # fmt: skip


def _parts(*, decided: bool = True) -> tuple[Any, ...]:
    from recsmith.training.systems.dedup.parts import Deduplicated

    return (Deduplicated(decided),)


SYSTEM = DedupSystem()
