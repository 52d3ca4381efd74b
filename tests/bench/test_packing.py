"""How FBGEMM travels to a machine without a package registry, and what comes back from a machine with GPUs."""

import hashlib
import io
import json
import lzma
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from recsmith.bench.journal import load_settings, open_run_store
from recsmith.bench.sharding import BenchResults
from recsmith.measuring.samples import read_samples
from recsmith.measuring.summary import summarize

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, GPU / script, *map(str, words)], capture_output=True, text=True)


def packed(folder: Path) -> Path:
    """Two parts of an archive of one file."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        entry = tarfile.TarInfo("fbgemm_gpu/code.so")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"bytes"))
    whole = lzma.compress(plain.getvalue())
    folder.mkdir()
    for number, part in enumerate((whole[:50], whole[50:])):
        (folder / f"fbgemm.0{number}").write_bytes(part)
        with (folder / "sha256").open("a") as sums:
            sums.write(f"{hashlib.sha256(part).hexdigest()}  fbgemm.0{number}\n")
    return folder


def test_parts_become_the_tree_they_were(tmp_path: Path):
    done = run("unpack.py", packed(tmp_path / "packed"), tmp_path / "tree")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tree" / "fbgemm_gpu" / "code.so").read_bytes() == b"bytes"


def test_a_part_that_is_missing_or_damaged_is_named_and_nothing_unpacked(tmp_path: Path):
    folder = packed(tmp_path / "packed")
    part = folder / "fbgemm.01"
    part.write_bytes(part.read_bytes()[:-1])
    assert run("unpack.py", folder, tmp_path / "tree").stderr.startswith(f"{part} is damaged")
    part.unlink()
    assert run("unpack.py", folder, tmp_path / "tree").stderr.startswith(f"{part} is missing")
    (folder / "sha256").unlink()
    assert "is no folder of pack.sh" in run("unpack.py", folder, tmp_path / "tree").stderr
    assert not (tmp_path / "tree").exists()


def entry(number: int, code: bytes) -> bytes:
    """The code for one kind of GPU, behind its header of 64 bytes."""
    return struct.pack("<HHIQ12xI", 2, 257, 64, len(code), number).ljust(64, b"\1") + code


def fat(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def test_code_of_one_gpu_stays_and_nothing_else_moves(tmp_path: Path):
    old, ours, new = entry(80, b"ampere.."), entry(90, b"hopper.."), entry(100, b"blackwell.......")
    library = tmp_path / "code.so"
    library.write_bytes(b"before.." + fat(old, ours, new) + b"between." + fat(ours, old) + b"after")
    done = run("one_architecture.py", 90, library)
    assert done.stdout.startswith("code.so: 2 fat binaries"), done.stderr
    zeros = bytes(len(old) + len(new))
    assert library.read_bytes() == (
        b"before.." + fat(ours) + zeros + b"between." + fat(ours) + bytes(len(old)) + b"after"
    )


def test_a_library_without_code_for_the_gpu_is_refused(tmp_path: Path):
    library = tmp_path / "code.so"
    library.write_bytes(fat(entry(80, b"ampere..")))
    assert "holds code for [80], and none for 90" in run("one_architecture.py", 90, library).stderr


ROOT = Path(__file__).parents[2]
PLANS = "--cost-model analytic --rows 4x64 --tasks 1 --planners size_greedy --visits 2"


def collect(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path), "MINUTES": "1",
                   "CASES": "--scale check --optimizers sgd"}  # fmt: skip
    script = ROOT / "benchmarks" / "gpu" / "collect.sh"
    return subprocess.run([script, *words], env=os.environ | environment | more, capture_output=True, text=True)


def test_samples_go_on(tmp_path: Path):
    pytest.importorskip("pyarrow")
    visits: list[int] = []
    for wanted in (10, 25):
        done = collect("simulated:h100", str(tmp_path), "samples", SAMPLES=str(wanted))
        assert done.returncode == 0, done.stderr
        found = summarize(tmp_path / "samples")
        assert (found.counts["ok"], found.about.scale, found.about.optimizers) == (wanted, "check", ("sgd",))
        visits.append(found.visits)
    assert visits[0] < visits[1]


def test_plans_that_were_made_elsewhere_are_measured(tmp_path: Path):
    missing = collect("simulated:h100", str(tmp_path), "plans", PLANS=PLANS)
    assert (missing.returncode, missing.stdout) == (0, "")
    assert "make them where the planners are" in missing.stderr
    plans = tmp_path / "plans"
    words = ["bench", "sharding", "--hardware", "simulated:h100", *PLANS.split(), "--plan-only", "-o", str(plans)]
    subprocess.run([sys.executable, "-m", "recsmith", *words], check=True, capture_output=True)
    assert not [line for line in (plans / "journal.jsonl").read_text().splitlines() if "measured" in json.loads(line)]
    done = collect("simulated:h100", str(tmp_path), "plans", PLANS=PLANS)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 visits measured" in (tmp_path / "plans.txt").read_text()
    with open_run_store(plans, load_settings(plans)) as book:
        assert len(book.measured) == 2


def test_ranks_of_measured_plans_become_samples(tmp_path: Path, whole: tuple[Path, BenchResults]):
    """Each once, with what its visits took."""
    script = ROOT / "benchmarks" / "gpu" / "plan_samples.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, script, str(whole[0]), str(tmp_path / "ranks")]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    samples = read_samples(tmp_path / "ranks")
    assert int(done.stdout.split()[0]) >= len(samples) > 10  # some visits are too far apart
    kernels = [visit.kernels.values() for visit in whole[1].measured.values()]
    timed = {tuple(seconds) for planners in kernels for ranks in planners for seconds in ranks.tolist()}
    for forward_s, backward_s in zip(samples.forward_s.tolist(), samples.backward_s.tolist(), strict=True):
        assert forward_s in {forward for forward, _ in timed}
        assert backward_s in {backward for _, backward in timed}
    assert len(set(samples.number.tolist())) == len(samples)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 1, "the hardware, such as cuda:h200"),
        (("cuda:h200",), 1, "a folder for the results"),
        (("simulated:h100", "{tmp}", "sample"), 2, "no step is called 'sample'; steps are check, bandwidth"),
        (("simulated:h100", "{tmp}", "check"), 2, "hardware simulated:h100 computes no embeddings"),
        (("simulated:h100", "{tmp}", "bandwidth"), 1, "has no memory to copy in; measure cuda or cpu"),
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: tuple[str, ...], code: int, said: str):
    done = collect(*(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert done.returncode == code
    assert said in done.stderr


def test_the_page_tells_what_there_is_and_what_is_missing(tmp_path: Path):
    (tmp_path / "check.txt").write_text("optimizer  weights  cases\n")
    script = ROOT / "benchmarks" / "gpu" / "report.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, script, str(tmp_path), "--model", "cpu"]
    page = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
    assert page.startswith("# AMD EPYC, 2 cores")
    assert "```\noptimizer  weights  cases\n```" in page
    assert "| Kendall's tau | 0.967 |" in page
    assert page.count("Not measured.") == 4
