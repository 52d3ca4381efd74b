"""recsmith data: look at data, check it, generate it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SPEC = """\
schema: recsmith/dataset/1
format: generator
num_samples: 6000
dense: 13
features:
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec that fits into Criteo's lines."""
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC + "".join(f"  - {{name: cat_{at}, num_embeddings: {50 + at}}}\n" for at in range(26)))
    return path


def test_inspect_shows_features_and_the_best_that_can_be_reached(run: Run, spec: Path):
    done = run("data", "inspect", spec)
    assert "samples  6,000; counted in the first 6,000" in done.out
    assert "no model exceeds AUC 0." in done.out
    raw = json.loads(run("data", "inspect", spec, "--samples", 100, "--format", "json").out)
    assert (raw["schema"], raw["num_samples"], len(raw["features"])) == ("recsmith/inspection/1", 6000, 26)
    assert raw["optimum"]["samples"] == 100


@pytest.mark.parametrize("words", [(), ("--form", "criteo"), ("--form", "criteo", "--gzip")])
def test_generated_files_are_checked_and_inspected(run: Run, spec: Path, tmp_path: Path, words: tuple[str, ...]):
    data = tmp_path / "made" / "data"
    done = run("data", "generate", spec, "-o", data, *words)
    assert (done.code, done.err) == (0, f"recsmith: note: 6,000 samples written to {data}\n")
    assert "samples  6,000, all of them read" in run("data", "check", data).out
    assert json.loads(run("data", "check", data, "--format", "json").out)["corrupt"] == 0
    raw = json.loads(run("data", "inspect", data, "--format", "json").out)
    assert "optimum" not in raw
    again = run("data", "generate", spec, "-o", data, *words)
    assert (again.code, "something is there; give a new folder" in again.err) == (2, True)


def test_a_check_tells_of_corrupt_lines(run: Run, tmp_path: Path):
    good = "\t".join(["0", *["5"] * 13, *["abcdef01"] * 26]) + "\n"
    (tmp_path / "log.tsv").write_text("garbage\n" * 3 + good)
    done = run("data", "check", tmp_path / "log.tsv")
    assert done.code == 0
    assert "corrupt  3; training passes over 100 of them a rank" in done.out
    assert done.says("log.tsv' line 1 has 1 field, not 40: 'garbage'")
    (tmp_path / "log.tsv").write_text(good + "garbage\n" * 101)
    done = run("data", "check", tmp_path / "log.tsv")
    assert (done.code, "corrupt  101; training passes over 100 of them a rank" in done.out) == (2, True)
    assert "101 samples are corrupt, more than max_corrupt: 100 allows" in done.err


def test_wrong_words_are_refused(run: Run, spec: Path, tmp_path: Path):
    for words, message in (
        (("inspect", tmp_path / "none.yaml"), "cannot read"),
        (("generate", spec, "-o", tmp_path / "a", "--gzip"), "--gzip is for --form criteo"),
        (("generate", tmp_path / "log.tsv", "-o", tmp_path / "a"), "is no spec with `format: generator`"),
        (("generate", spec, "-o", spec / "b"), "spec.yaml/b': Not a directory; choose a folder you may"),
    ):
        done = run("data", *words)
        assert done.code == 2
        assert message in done.err


def test_data_is_converted_clustered_checked_and_counted(run: Run, spec: Path, tmp_path: Path):
    (tmp_path / "jobs.yaml").write_text("cat_7: 4\ncat_3: 9\n")
    spec.write_text(spec.read_text() + "sessions: {size: 4, duplication: 0.9}\n")
    done = run("data", "convert", spec, "-o", tmp_path / "a", "--popularity", tmp_path / "jobs.yaml")
    assert (done.code, "6,000 samples in 1 file, 1 row group" in done.err) == (0, True)
    b = tmp_path / "made" / "b"
    done = run("data", "cluster", tmp_path / "a", "-o", b, "--session", "cat_3", "--row-group", "64KiB")
    assert (done.code, "written to" in done.err) == (0, True)
    shown = run("data", "inspect", tmp_path / "a", "--batch-size", 500).out
    assert "1,500 in the samples counted, of 4.0 each, 4.0 of them side by side" in shown
    assert json.loads(run("data", "inspect", b, "--format", "json").out)["stored"]["row_groups"] > 10
    out = tmp_path / "workload.json"
    done = run("data", "workload", tmp_path / "a", "--batch-size", 500, "--deduplicate", "-o", out)
    assert "26 tables, 26 of them of deduplicated features, written to" in done.err
    assert run("plan", out, "--cluster", "h100:2").code == 0
    path = b / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    done = run("data", "check", b)
    assert (done.code, done.says("cut off or damaged")) == (2, True)
    raw = json.loads(run("data", "check", b, "--format", "json").out)
    assert [each["fault"] for each in raw["faults"]][1].endswith("in the manifest")


def test_vocabularies_are_counted(run: Run, tmp_path: Path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"city": ["Rome", "Rome", "Oslo"], "clicked": [0, 1, 0]}), tmp_path / "a.parquet")
    text = "format: parquet\npaths: [a.parquet]\nlabels: [clicked]\nfeatures: [{name: city%s}]\n"
    (tmp_path / "a.yaml").write_text(text % ", vocabulary: made/city.arrow")
    (tmp_path / "b.yaml").write_text(text % "")
    done = run("data", "vocabulary", tmp_path / "a.yaml", "-o", tmp_path / "made", "--least", "2")
    assert done.code == 0
    assert "66.67%" in done.out
    raw = json.loads(run("data", "vocabulary", tmp_path / "a.yaml", "-o", tmp_path / "b", "--format", "json").out)
    assert (raw["schema"], raw["vocabularies"][0]["distinct"]) == ("recsmith/vocabularies/1", 2)
    again = run("data", "vocabulary", tmp_path / "a.yaml", "-o", tmp_path / "made")
    assert (again.code, "something is there; give a new folder" in again.err) == (2, True)
    none = run("data", "vocabulary", tmp_path / "b.yaml", "-o", tmp_path / "c")
    assert (none.code, "no feature of the data has a vocabulary; give those of text" in none.err) == (2, True)
    assert not (tmp_path / "c").exists()


def test_a_run_is_drafted_and_not_written_over(run: Run, tmp_path: Path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_text("user,clicked\n" + "".join(f"{at % 9},{at % 2}\n" for at in range(40)))
    target = tmp_path / "run.yaml"
    done = run("init", tmp_path / "a.csv", "-o", target)
    assert (done.code, "read it, and then: recsmith data vocabulary" in done.err) == (0, True)
    counted = run("data", "vocabulary", target, "-o", tmp_path / "vocabularies")
    assert (counted.code, counted.says("user.arrow")) == (0, True)
    target.write_text("my own file\n")
    assert run("init", tmp_path / "a.csv", "-o", target).code == 2
    assert target.read_text() == "my own file\n"
    assert run("init", tmp_path / "a.csv", "-o", "-").out.startswith("# A draft for ")


def test_a_run_is_data_that_it_trains_on(run: Run, tmp_path: Path):
    spec, job = tmp_path / "spec.yaml", tmp_path / "job.yaml"
    body = "{format: generator, num_samples: 600, features: [{name: item, num_embeddings: 50}]}\n"
    spec.write_text(body.strip("{}\n").replace(", num_", "\nnum_", 1).replace(", features", "\nfeatures"))
    job.write_text(f"schema: recsmith/run/1\noutput: runs/job\ndata: {{train: {body.strip()}}}\n")
    for words in (("inspect",), ("check",), ("workload",), ("capacity",), ("convert", "-o", tmp_path / "files")):
        of_run = run("data", words[0], job, *words[1:])
        of_spec = run("data", words[0], spec, *words[1:])
        assert (of_run.code, of_run.out) == (0, of_spec.out.replace(str(spec), str(job)))
        assert f"'{job}' is a run; its data.train is read" in of_run.err
    job.write_text("schema: recsmith/run/1\noutput: o\nsteps: 3\ndata: {train: {source: 'mine:Clicks'}}\n")
    refused = run("data", "check", job)
    assert (refused.code, "is a source of its own (mine:Clicks), which training" in refused.err) == (
        2,
        True,
    )
