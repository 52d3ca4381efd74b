"""What a folder of written Parquet files says of itself: finished, and then which files it has; or how far it is."""

from pathlib import Path
from typing import TypeVar

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.files import decode, dump_json, encode, read_raw, write_text

Kind = TypeVar("Kind")
MANIFEST, UNFINISHED = "_manifest.json", "_unfinished.json"  # readers of Parquet pass over names that begin with _
SCHEMA, JOB_SCHEMA = "recsmith/manifest/1", "recsmith/unfinished/1"


@noun
class PartFile:
    """A file of a dataset: its name in the folder, its rows, row groups and bytes."""

    name: str
    samples: int
    row_groups: int
    bytes: int


@noun
class Manifest:
    """The files of a finished dataset, in order.

    corrupt: samples of the source that were passed over. session: what the samples are clustered by, if they are.
    """

    parts: tuple[PartFile, ...]
    corrupt: int = 0
    session: str | None = None

    @property
    def samples(self) -> int:
        """Samples of all files."""
        return sum(part.samples for part in self.parts)


@noun
class Job:
    """What an unfinished folder is written from, so that only the same command goes on with it.

    digest: of the source and the options. buckets: files that sessions are put into by their hash; 0 keeps the order.
    run_samples: samples of the source that are put into them at once.
    """

    digest: str
    buckets: int = 0
    run_samples: int = 1

    def __post_init__(self) -> None:
        """Check ranges."""
        check_rules(
            None if self.buckets >= 0 else f"buckets is {self.buckets}; it must be 0 or more",
            None if self.run_samples >= 1 else f"run_samples is {self.run_samples}; it must be 1 or more",
        )


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None where it has none, as folders that others wrote.

    Raises:
        CorruptFile: it is not what RecSmith writes.
    """
    return _read(folder / MANIFEST, SCHEMA, Manifest)


def read_job(folder: Path) -> Job | None:
    """What an unfinished folder is written from; None where it is finished, or nothing began."""
    return _read(folder / UNFINISHED, JOB_SCHEMA, Job)


def save_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest whole, and only then take back that the folder is unfinished."""
    write_text(str(folder / MANIFEST), dump_json({"schema": SCHEMA, **encode(manifest)}))
    (folder / UNFINISHED).unlink(missing_ok=True)


def save_job(folder: Path, job: Job) -> None:
    """Say that a folder is unfinished."""
    write_text(str(folder / UNFINISHED), dump_json({"schema": JOB_SCHEMA, **encode(job)}))


def _read(path: Path, schema: str, noun: type[Kind]) -> Kind | None:
    if not path.exists():
        return None
    return decode(noun, read_raw(str(path), schema), str(path))
