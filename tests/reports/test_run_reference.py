"""The reference of a run's keys: each has a meaning, and docs/reference/run.md says what the nouns say."""

from dataclasses import fields
from pathlib import Path

import pytest
from support.systems import EVERY, needs_systems

from recsmith.reports.component_settings import component_schemas, component_tables, components, shipped_schemas
from recsmith.reports.docstrings import meanings
from recsmith.reports.run_reference import nouns, run_schema, run_tables

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "run.md"


@pytest.mark.parametrize("noun", nouns())
def test_every_key_has_a_meaning(noun: type) -> None:
    said = meanings(noun)
    assert {each.name for each in fields(noun)} == set(said)  # type: ignore[arg-type]
    assert all(len(meaning) > 5 for meaning in said.values())


@needs_systems(*EVERY)
def test_docs_have_the_reference_as_the_nouns_have_it() -> None:
    section = REFERENCE.read_text("utf-8").partition("\n## Every key\n")[2]
    assert run_tables().strip() in section


def test_the_schema_has_defaults_and_meanings() -> None:
    made = run_schema()
    assert made["properties"]["seed"] == {
        "default": 0, "title": "Seed", "type": "integer",
        "description": "seed of the initial weights, the order of samples and dropout.",
    }  # fmt: skip
    assert made["anyOf"] == [{"required": ["data", "output"]}, {"required": ["extends"]}]
    assert made["$defs"]["Checkpointing"]["properties"]["every"]["description"] == "steps between two checkpoints."


@needs_systems(*EVERY)
@pytest.mark.usefixtures("torchrec")
class TestComponents:
    """What can be named with settings, where all that they need is installed."""

    def test_every_setting_has_a_meaning(self) -> None:
        found = list(components())
        assert {(key, name) for key, name, _ in found} >= {
            ("pipeline", "dance"), ("rows", "tiered"), ("rows", "split"), ("comms", "thresholded"),
            ("watchers", "anomalies"), ("data.periods.update", "future_gradient"), ("model.table_module", "towers"),
            ("optimizers.dense", "shampoo"),
        }  # fmt: skip
        assert not [(key, name, each.name) for key, name, ours in found for each in ours if len(each.meaning) < 5]

    def test_docs_have_them_as_the_classes_have_them(self) -> None:
        section = REFERENCE.read_text("utf-8").partition("\n## Every component\n")[2]
        assert component_tables().strip() in section

    def test_the_file_that_ships_says_what_the_classes_say(self) -> None:
        assert shipped_schemas() == component_schemas(), "run python -m recsmith.reports.component_settings"

    def test_the_schema_has_them_where_a_run_names_them(self) -> None:
        made = run_schema()
        tiered = made["$defs"]["components"]["rows"]["tiered"]
        assert tiered["required"] == ["name", "folder"]
        assert tiered["properties"]["profile"]["type"] == "integer"
        assert not tiered["additionalProperties"]
        for place in (
            made["properties"]["rows"], made["$defs"]["Periods"]["properties"]["update"],
            made["properties"]["watchers"]["items"], made["properties"]["comms"],
        ):  # fmt: skip
            named = [each["$ref"].split("/") for each in place["anyOf"] if "components" in each.get("$ref", "")]
            assert named
            assert all(name in made["$defs"]["components"][key] for *_, key, name in named)
