"""The reference of a run's keys: each has a meaning, and docs/train.md says what the nouns say."""

from dataclasses import fields
from pathlib import Path

import pytest

from recsmith.training.reference import meanings, nouns, run_schema, run_tables

TRAIN = Path(__file__).parents[2] / "docs" / "train.md"


@pytest.mark.parametrize("noun", nouns())
def test_every_key_has_a_meaning(noun: type) -> None:
    said = meanings(noun)
    assert {each.name for each in fields(noun)} == set(said)  # type: ignore[arg-type]
    assert all(len(meaning) > 5 for meaning in said.values())


def test_docs_have_the_reference_as_the_nouns_have_it() -> None:
    section = TRAIN.read_text("utf-8").partition("\n## Every key\n")[2]
    assert run_tables().strip() in section


def test_the_schema_has_defaults_and_meanings() -> None:
    made = run_schema()
    assert made["properties"]["seed"] == {
        "default": 0, "title": "Seed", "type": "integer",
        "description": "from which weights at the start, the order of samples and dropout follow.",
    }  # fmt: skip
    assert made["required"] == ["schema", "data", "output"]
    assert made["$defs"]["Checkpointing"]["properties"]["every"]["description"] == "steps between two of them."
