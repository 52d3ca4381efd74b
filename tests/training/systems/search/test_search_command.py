"""`recsmith search`."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.search")
pytest.importorskip("recsmith.training.systems.stored")  # whose tables are masked

from click.testing import CliRunner, Result

from recsmith.errors import RecSmithError
from recsmith.training import load_run
from recsmith.training.systems.search.command import search_command

FEATURES = "[{name: item, num_embeddings: 400, zipf: 1.1}, {name: user, num_embeddings: 60}]"
DATA = f"{{format: generator, num_samples: 4000, seed: 1, dense: 2, features: {FEATURES}"
RUN = f"""schema: recsmith/run/1
output: runs/first
data:
  train: {DATA}}}
  test: {DATA}, first_sample: 4000}}
  batch_size: 64
steps: 30
model: {{embedding_dim: 8, bottom: [8], top: [8]}}
metrics: {{every: 10}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN)


def run(*words: str) -> Result:
    return CliRunner().invoke(search_command, ["run.yaml", *words])


def test_a_dry_run_shows_choices_with_prices_and_writes_nothing() -> None:
    found = run("--price", "bytes", "--under", "70%", "--rows", "0.5", "--dry-run")
    assert found.exit_code == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "2 tables, 0 layers, 16 samples; prices are of bytes"
    assert lines[1] == "item  4 of 0.5 rows: 3.125 KiB, 8 of 0.5 rows: 6.25 KiB, 4: 6.25 KiB, 8: 12.5 KiB"
    assert "for the cheapest sample" in lines[-2]
    assert re.match(r"of these, .* have no choice, such as dense layers .*, and --under counts both$", lines[-1])
    assert [path.name for path in Path().iterdir()] == ["run.yaml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--under", "half"], "such as 40%"),
        (["--under", "0"], "above 0%"),
        (["--under", "1%", "--price", "bytes"], "no sample of this space is under 1.0%"),
        (["--widths", "8", "--price", "bytes"], "nothing to search"),
        (["--widths", "6", "--price", "bytes"], "multiples of 4"),
        (["--widths", "four"], "write numbers"),
        (["--set", "data.test=null"], "names no data.test"),
        (["--cluster", "h100:8"], "a search does not pay"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence_and_nothing_is_written(words: list[str], said: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, RecSmithError), found.output
    assert said in str(found.exception)
    assert [path.name for path in Path().iterdir()] == ["run.yaml"]


@pytest.mark.soak
def test_samples_are_run_files_and_a_page_shows_them_beside_uniform_widths_and_the_power_rule() -> None:
    found = run("--price", "bytes", "--under", "80%", "--retrain", "2", "-o", "found")
    assert found.exit_code == 0, found.output
    made = load_run("found/sample-1.json")
    assert {rule.method for rule in made.model.compression} == {"truncated"}
    kinds = [point["kind"] for point in json.loads(Path("found/points.json").read_text())["points"]]
    assert list(dict.fromkeys(kinds)) == ["as it is", "search", "uniform", "power rule"]
    page = Path("found/search.html").read_text()
    assert all(f">{kind}</text>" in page for kind in kinds)
    ElementTree.fromstring(Path("found/search.svg").read_text())
    again = run("--price", "bytes", "--under", "80%", "--retrain", "2", "-o", "found")
    assert again.stdout == found.stdout
