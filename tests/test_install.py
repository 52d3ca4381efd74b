"""What users are told to install: the packages of the extras, spelled out, and never RecSmith from an index."""

import re
import tomllib
from pathlib import Path

import pytest

from recsmith import _install

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
TEXTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/*.py")]
FROM_AN_INDEX = re.compile(r"pip install [^\n`#]*(?<![/\w])recsmith(?![-/\w])")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("solve", _install.SOLVER),
        ("measure", _install.PARQUET),
        ("data", _install.PARQUET),
        ("learn", _install.TRAINING),
        ("web", _install.WEB),
        ("ray", _install.RAY),
        ("watch", _install.WATCHING),
        ("compress", _install.CLUSTERING),
        ("mlflow", _install.MLFLOW),
        ("wandb", _install.WANDB),
        ("onnx", _install.ONNX),
        ("torchrec-cpu", _install.TRIO),
        ("torchrec", _install.TRIO),
    ],
)
def test_what_is_to_be_installed_is_the_extra(extra: str, words: str):
    named = re.findall(r"(?<= )'?([a-z][a-z-]*(?:[=<>][^ ']*)?)'?(?= |$|\))", words)
    assert set(EXTRAS[extra]) <= set(named)


def test_training_needs_parquet_and_tensorboard():
    words = f"{_install.PARQUET} {_install.TENSORBOARD}"
    assert set(EXTRAS["train"]) == set(re.findall(r"'([^']+)'", words))


def test_the_pair_is_part_of_the_trio():
    assert set(re.findall(r"'[^']+'", _install.PAIR)) <= set(re.findall(r"'[^']+'", _install.TRIO))


def test_nobody_is_sent_to_an_index_where_recsmith_is_not():
    assert len(TEXTS) > 300
    found = {path.name: FROM_AN_INDEX.search(path.read_text("utf-8")) for path in TEXTS}
    assert [name for name, match in found.items() if match] == []
    assert FROM_AN_INDEX.search("pip install 'recsmith[solve]'")
    assert not FROM_AN_INDEX.search("pip install dist/recsmith-0.1.0-cp311-abi3-linux_x86_64.whl")


def test_what_is_missing_is_said_in_one_manner():
    """What needs which package, and behind a colon what to type."""
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    said = [each for text in texts for each in re.findall(r'raise MissingExtra\(\s*f"(.*?)"', text)]
    assert len(said) > 8
    assert [
        each for each in said if not re.search(r"(needs? .*|install a pair): \{\w+\}|needs \{CUDA_BUILD\}", each)
    ] == []
