"""What resharding refuses before anything is touched, and what an interrupted run leaves: nothing half done."""

import os
import pickle
import random
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.build import table
from support.exactness import cpu_cluster
from support.resharding import DIM, ROWS, hand_made, hashes, turned, whole, write_whole

from recsmith import CorruptFile, Placement, Plan, PlanMismatch, RecSmithError, UsageError

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:.*fork.*:DeprecationWarning"),
]

NEW = turned(cpu_cluster(1, 3), 2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "step"
    write_whole(folder)
    return folder


@pytest.fixture
def checkpoint(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "step"))


def reshard(*words: Any, **more: Any) -> Any:
    from recsmith.adapters.reshard.reshard import reshard as run

    return run(*words, **more)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, wanted: type[Exception], words: str, *plans: Plan, **more: Any) -> None:
    before = files(folder)
    with pytest.raises(wanted, match=words) as found:
        reshard(folder, *(plans or (whole(), NEW)), folder.parent / "out", **more)
    assert "\n" not in str(found.value)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]
    assert files(folder) == before


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_complete_checkpoint(checkpoint: Path):
    data = next(checkpoint.glob("*.distcp"))
    whole_file = data.read_bytes()
    data.write_bytes(whole_file[:-1000])
    refused(checkpoint, CorruptFile, "is cut short: it has .* bytes, and entry")
    data.write_bytes(whole_file[: len(whole_file) // 2] + bytes(len(whole_file) - len(whole_file) // 2))
    refused(checkpoint, CorruptFile, "is damaged, or in another format: no tensor of entry")
    data.unlink()
    refused(checkpoint, CorruptFile, "lacks its file '__0_0.distcp'")
    (checkpoint / ".metadata").unlink()
    refused(checkpoint, UsageError, "holds no complete checkpoint: it has no .metadata, which is written last")
    shutil.rmtree(checkpoint)
    with pytest.raises(UsageError, match="is no folder; give one that torch"):
        reshard(checkpoint, whole(), NEW, checkpoint.parent / "out")


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hostile",)


def test_metadata_that_names_anything_else_is_refused_and_nothing_runs(checkpoint: Path, monkeypatch: Any):
    monkeypatch.chdir(checkpoint)
    (checkpoint / ".metadata").write_bytes(pickle.dumps(Hostile()))
    refused(checkpoint, CorruptFile, "it names posix.system, which no checkpoint of PyTorch does")
    (checkpoint / ".metadata").write_bytes(pickle.dumps([1]))
    refused(checkpoint, CorruptFile, "it holds something else")


class Asking:
    """A pickle of getattr(kind, name)."""

    def __init__(self, kind: type, name: str) -> None:
        self.asked = kind, name

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, self.asked


def test_of_attributes_memory_formats_alone_are_read(checkpoint: Path):
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, ChunkStorageMetadata

    file = checkpoint / ".metadata"
    file.write_bytes(pickle.dumps(Asking(_MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT")))  # as Python 3.11.2 does
    refused(checkpoint, CorruptFile, "it holds something else")
    for kind, name in ((ChunkStorageMetadata, "__init__"), (_MEM_FORMAT_ENCODING, "__class__")):
        file.write_bytes(pickle.dumps(Asking(kind, name)))
        refused(checkpoint, CorruptFile, "it names an attribute, which no checkpoint of PyTorch does")


def test_whoever_lets_torch_read_a_folder_can_look_first(checkpoint: Path, monkeypatch: Any):
    from recsmith.adapters.checkpoints import check_metadata

    monkeypatch.chdir(checkpoint)
    check_metadata(checkpoint)
    (checkpoint / ".metadata").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CorruptFile, match=r"it names posix\.system"):
        check_metadata(checkpoint)
    (checkpoint / ".metadata").unlink()
    with pytest.raises(UsageError, match="holds no complete checkpoint"):
        check_metadata(checkpoint)
    assert not (checkpoint / "hostile").exists()


def test_damaged_metadata_is_one_error(checkpoint: Path):
    metadata = checkpoint / ".metadata"
    good, drawn, errors = metadata.read_bytes(), random.Random(0), 0
    for _ in range(100):
        data = bytearray(good)
        at = drawn.randrange(len(data))
        data[at] = drawn.choice(b"\x00\x01\x05()tRb}]KMN.")  # operations and small numbers; none that takes much memory
        metadata.write_bytes(bytes(data[: drawn.choice((len(data), at))]))
        try:
            reshard(checkpoint, whole(), NEW, checkpoint / "no" / "such", strict=True)
        except UsageError as error:
            errors += "does not exist" not in str(error)
        from recsmith.adapters.checkpoints import read_checkpoint

        try:
            read_checkpoint(checkpoint)
        except UsageError:
            errors += 1
    assert errors > 50


def test_files_outside_of_the_folder_are_not_read(checkpoint: Path):
    metadata = checkpoint / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"__0_0.distcp", b"../../passwd"))
    refused(checkpoint, CorruptFile, "names '../../passwd', which lies outside of the folder")


@pytest.mark.parametrize(
    ("part", "odd"),
    [("properties", ()), ("properties", ([1],)), ("size", (-1, 2)), ("chunks", (1,)), ("planner_data", ())],
)
def test_metadata_of_odd_parts_is_one_error(checkpoint: Path, part: str, odd: Any):
    """Parts that are of the wrong kind though every name is PyTorch's."""
    metadata = pickle.loads((checkpoint / ".metadata").read_bytes())
    key = next(key for key, each in metadata.state_dict_metadata.items() if hasattr(each, "chunks"))
    if part == "planner_data":
        metadata.planner_data[key] = odd
    elif part == "properties":
        entry = metadata.state_dict_metadata[key]
        kind: Any = type(entry.properties)
        before = kind.__getstate__
        kind.__getstate__ = lambda _: odd
    else:
        setattr(metadata.state_dict_metadata[key], part, odd)
    try:
        data = pickle.dumps(metadata)
    finally:
        if part == "properties":
            kind.__getstate__ = before
    (checkpoint / ".metadata").write_bytes(data)
    refused(checkpoint, CorruptFile, "has no element type, sizes or chunks that can be read|has no path")


def test_a_file_name_that_no_system_has_is_one_error(checkpoint: Path):
    metadata = pickle.loads((checkpoint / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = "x" * 5000
    (checkpoint / ".metadata").write_bytes(pickle.dumps(metadata))
    refused(checkpoint, CorruptFile, "lacks its file 'xxx")


# --- managed collisions -----------------------------------------------------------------------------------------------

REMAPS = "mc._managed_collision_collection._managed_collision_modules.t0."


def remapped(folder: Path, name: str, numbers: Any) -> None:
    """A checkpoint of one table of 40 rows whose ids are remapped."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    weights = {"mc._embedding_module.embedding_bags.t0.weight": torch.rand(40, DIM)}
    save({"model": weights | {REMAPS + name: torch.tensor(numbers)}}, checkpoint_id=folder, no_dist=True)


def row_wise(ranks: int, kind: str = "row_wise") -> Plan:
    placed = Placement(table="t0", sharding_type=kind, compute_kernel="fused", ranks=tuple(range(ranks)))
    return hand_made([table("t0", 40, DIM)], [placed], cpu_cluster(1, ranks), "sgd")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("_output_segments_tensor", [0, 10, 20, 30, 40, *[-1] * 1020]),
        ("_hash_zch_bucket", [[4]]),
    ],
)
def test_ids_are_parted_at_the_edges_of_the_checkpoint_alone(tmp_path: Path, name: str, numbers: Any, strict: bool):
    folder = tmp_path / "step"
    remapped(folder, name, numbers)
    words = r"rank 0 of the new plan would hold rows 0 to 14, which lie across the edges .*\(0, 10, 20, 30, 40, in "
    refused(folder, PlanMismatch, words, row_wise(1), row_wise(3), strict=strict)
    refused(folder, PlanMismatch, "is table_wise in the new plan", row_wise(1), row_wise(1, "table_wise"))
    for ranks in (2, 4):
        reshard(folder, row_wise(1), row_wise(ranks), tmp_path / f"out{ranks}", strict=strict)


def test_edges_that_cannot_be_read_are_refused(tmp_path: Path):
    remapped(tmp_path / "step", "_output_segments_tensor", [0.0, 40.0])
    refused(tmp_path / "step", CorruptFile, "is no list of at most 65,536 whole numbers", row_wise(1), row_wise(2))


# --- plans ------------------------------------------------------------------------------------------------------------


def of_tables(*names: str, rows: int = ROWS, kind: str = "table_wise") -> Plan:
    ranks, widths = ((0, 1), (16, 16)) if kind == "column_wise" else ((0,), ())
    placements = [
        Placement(table=name, sharding_type=kind, compute_kernel="fused", ranks=ranks, widths=widths) for name in names
    ]
    return hand_made([table(name, rows, DIM) for name in names], placements, cpu_cluster(1, 2), "adagrad")


ALL = tuple(f"t{i}" for i in range(7))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            of_tables(*ALL, "t9"),
            NEW,
            "the old plan places table 't9', which '.*' does not hold; its tables are such as",
        ),
        (of_tables(*ALL[:-1]), NEW, "holds table 't6' .* which the old plan does not place"),
        (of_tables(*ALL, kind="column_wise"), NEW, "was not written under the old plan: of table .t0. .column_wise."),
        (
            of_tables(*ALL, rows=40),
            of_tables(*ALL, rows=40),
            "has .41, 32. numbers, and table .t0. has 40 x 32 weights",
        ),
        (whole(), of_tables(*ALL, rows=50), "table 't.' has num_embeddings 41 in the old plan and 50 in the new one"),
    ],
)
def test_plans_that_do_not_fit(checkpoint: Path, old: Plan, new: Plan, words: str):
    refused(checkpoint, PlanMismatch, words, old, new)


def test_a_plan_of_python_that_loses_columns_is_refused(checkpoint: Path):
    short = tuple(
        replace(each, sharding_type="column_wise", ranks=(0, 1), widths=(16, 12)) for each in whole().placements
    )
    refused(
        checkpoint, PlanMismatch, "widths .16, 12. add up to 28, not 32", whole(), replace(whole(), placements=short)
    )


def test_a_checkpoint_that_names_its_plan_takes_no_other(checkpoint: Path):
    from recsmith.adapters.reshard.layout import tie_checkpoint

    tie_checkpoint(checkpoint, whole())
    moved = replace(whole(), placements=tuple(replace(each, ranks=(1,)) for each in whole().placements))
    refused(checkpoint, PlanMismatch, "was written under a plan with other shards than the old plan", moved, NEW)
    reshard(checkpoint, whole(), NEW, checkpoint.parent / "out")
    with pytest.raises(PlanMismatch, match="was written under a plan with other shards"):
        reshard(checkpoint.parent / "out", whole(), NEW, checkpoint.parent / "again")


def test_new_tables_need_a_word_and_strict_keeps_its_own(checkpoint: Path, tmp_path: Path):
    refused(checkpoint, UsageError, "say what it begins with: --init uniform", whole(), of_tables(*ALL, "t9"))
    other = tmp_path / "other" / "step"
    other.parent.mkdir()
    write_whole(other, "rowwise_adagrad")
    new = turned(cpu_cluster(2, 2), 0, "rowwise_adagrad")
    words = "--strict: state 'momentum1' of table 't1' .and of 3 more. would be replicated"
    refused(other, UsageError, words, whole("rowwise_adagrad"), new, strict=True)


def test_outputs_that_must_not_be_written(checkpoint: Path):
    out = checkpoint.parent / "out"
    for target, words in (
        (checkpoint, "it exists"),
        (Path(__file__) / "no", "Not a directory"),
        (checkpoint / "in", "lies inside"),
    ):
        with pytest.raises(UsageError, match=words):
            reshard(checkpoint, whole(), NEW, target)
    assert not out.exists()
    out = out / "made" / "too"
    reshard(checkpoint, whole(), NEW, out)
    before = files(out)
    with pytest.raises(UsageError, match="it exists; give the path of a new folder"):
        reshard(checkpoint, whole(), NEW, out)
    assert files(out) == before


# --- interruptions ----------------------------------------------------------------------------------------------------


def in_child(run: Callable[[], object]) -> int:
    """How a forked process ends that runs something: 0, 9 where it was killed, 77 where an error ended it."""
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        except RecSmithError as error:
            Path(os.environ["SAID"]).write_text(str(error))
            os._exit(77)
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_run_that_is_killed_ten_times_ends_with_the_same_files(checkpoint: Path, monkeypatch: Any):
    from recsmith.adapters.reshard import partial

    folder = checkpoint.parent
    reshard(checkpoint, whole(), NEW, folder / "at once")
    before = files(checkpoint)
    drawn = random.Random(0)

    def killed_on_the_way() -> None:
        adds, dies = 0, drawn.randrange(3, 6)
        plain = partial.Partial.add

        def add(self: Any, key: str, number: int, chunk: Any, write: Any) -> None:
            nonlocal adds
            adds += 1

            def half(file: Any) -> None:
                write(file)
                if adds == dies:
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)  # after the bytes, before the journal speaks of them

            plain(self, key, number, chunk, half)

        partial.Partial.add = add
        reshard(checkpoint, whole(), NEW, folder / "out")

    monkeypatch.setattr(partial, "COMMIT_BYTES", 6000)  # after every few chunks
    sizes: list[int] = []
    for _ in range(10):
        drawn.random()
        assert in_child(killed_on_the_way) == -signal.SIGKILL
        assert not (folder / "out").exists()
        sizes.append((folder / "out.partial" / partial.JOURNAL).read_bytes().count(b"\n"))
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0] + 10  # later runs go on where earlier ones ended
    report = reshard(checkpoint, whole(), NEW, folder / "out")
    assert report.resumed_bytes > 0
    assert files(checkpoint) == before
    assert {k: v for k, v in files(folder / "out").items() if k != ".metadata"} == {
        k: v for k, v in files(folder / "at once").items() if k != ".metadata"
    }
    assert hashes(folder / "out") == hashes(checkpoint)
    assert not (folder / "out.partial").exists()


def test_unfinished_work_of_another_run_is_not_taken_over(checkpoint: Path, monkeypatch: Any):
    from recsmith.adapters.reshard import partial

    out, unfinished = checkpoint.parent / "out", checkpoint.parent / "out.partial"
    monkeypatch.setattr(partial.Partial, "become", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(RecSmithError, match="Input/output error; what is done is kept in"):
        reshard(checkpoint, whole(), NEW, out)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="is the unfinished work of another reshard; delete it"):
        reshard(checkpoint, whole(), turned(cpu_cluster(1, 3), 1), out)
    journal = unfinished / partial.JOURNAL
    lines = journal.read_bytes()
    journal.write_bytes(lines.replace(b'"start": 0,', b'"start": 9999999,', 1))
    with pytest.raises(CorruptFile, match="speaks of bytes that are not there; delete"):
        reshard(checkpoint, whole(), NEW, out)
    journal.write_bytes(lines)
    assert reshard(checkpoint, whole(), NEW, out).resumed_bytes > 0
    assert hashes(out) == hashes(checkpoint)


def test_a_disk_that_fills_up_leaves_no_output_and_keeps_what_is_done(checkpoint: Path, monkeypatch: Any):
    from recsmith.adapters.reshard import reshard as module

    out, said = checkpoint.parent / "out", checkpoint.parent / "said"
    monkeypatch.setenv("SAID", str(said))
    monkeypatch.setattr(module, "free_bytes", lambda _: 1000)
    refused(checkpoint, UsageError, "it takes .* and its disk has 0.98 KiB free|it takes .* free; make room")
    monkeypatch.undo()
    monkeypatch.setenv("SAID", str(said))

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        reshard(checkpoint, whole(), NEW, out)

    assert in_child(limited) == 77
    assert "make room and run the same command again" in said.read_text()
    assert not out.exists()
    out = out / "made" / "too"
    reshard(checkpoint, whole(), NEW, out)
    assert hashes(out) == hashes(checkpoint)
