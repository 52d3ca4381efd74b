"""Running the command line: in this process, and as users do."""

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import recsmith
from recsmith.cli import main

COMMAND = f"{sys.executable} -m recsmith"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(recsmith.__file__).parents[1]), "COLUMNS": "100"}

TABLES = """\
schema: recsmith/workload/1
batch_size: 64
optimizer: rowwise_adagrad
tables:
  - {name: small, num_embeddings: 100, embedding_dim: 16, pooling_factor: 1}
  - {name: medium, num_embeddings: 1e5, embedding_dim: 64, pooling_factor: 20}
  - {name: large, num_embeddings: 1e6, embedding_dim: 128, pooling_factor: 5}
"""


class Done(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str

    def says(self, words: str) -> bool:
        """Whether these words were printed, wherever their lines are broken: paths are as long as they are."""
        return "".join(words.split()) in "".join(self.out.split())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`recsmith <words>` in this process."""

    def run(*words: object, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["recsmith", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(int(stop.value.code or 0), out, err)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., Done]:
    """A line of bash in which $RECSMITH is the command, in an empty folder."""

    def shell(line: str, **variables: str) -> Done:
        done = subprocess.run(
            ["bash", "-c", line],
            env={**ENVIRONMENT, "RECSMITH": COMMAND, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    return shell


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A file of three tables."""
    path = tmp_path / "tables.yaml"
    path.write_text(TABLES)
    return path
