"""Texts that are at hand: read where a path is read, and never looked for as a file or a name."""

import json
from pathlib import Path

import pytest

import recsmith
from recsmith.errors import CorruptFile
from recsmith.files import Given

TABLES = """schema: recsmith/workload/1
batch_size: 64
optimizer: sgd
tables:
- {name: a, num_embeddings: -1, embedding_dim: 8, pooling_factor: 1}
"""


def test_the_text_is_read_and_errors_name_its_lines():
    with pytest.raises(CorruptFile, match=r"'mine.yaml': .*\(line 5\)"):
        recsmith.load_workload(Given.of("mine.yaml", TABLES + "  # a comment\n"))


@pytest.mark.parametrize("name", ["dlrm-v2", "h100:8", "-", "/etc/passwd"])
def test_no_file_and_no_built_in_is_taken_for_it(name: str):
    for load in (recsmith.load_workload, recsmith.load_cluster, recsmith.load_plan, recsmith.load_constraints):
        with pytest.raises(CorruptFile, match="names no schema"):
            load(Given.of(name, "{}"))


def test_pins_to_a_file_are_refused(tmp_path: Path):
    given = Given.of("rules.json", json.dumps({"schema": "recsmith/constraints/1", "pin_to": str(tmp_path / "x")}))
    with pytest.raises(CorruptFile, match="did not come with it"):
        recsmith.load_constraints(given)
