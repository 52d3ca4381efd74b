"""The API's document: complete, and true of what the server answers."""

import json
import re
from pathlib import Path
from typing import Any

from support.served import Client

from recsmith.web.serving.operations import OPERATIONS, openapi

ROOT = Path(__file__).parents[3]


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if "$ref" in part else set[str]()
        return own.union(*(references(each) for each in part.values()))
    return set[str]().union(*(references(each) for each in part)) if isinstance(part, list) else set()


def test_every_reference_leads_somewhere():
    document = json.loads(json.dumps(openapi()))
    found = references(document)
    assert len(found) > 25
    assert {name.removeprefix("#/components/schemas/") for name in found} <= document["components"]["schemas"].keys()


def test_every_operation_is_told_once_and_served(client: Client):
    told = openapi()["paths"]
    names = [each["operationId"] for path in told.values() for each in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)
    assert client.ask("GET", "/api/openapi.json").json() == json.loads(json.dumps(openapi()))
    for operation in OPERATIONS:
        answer = client.ask(operation.method, operation.path.replace("{id}", "plan-0"))
        documented = told[operation.path][operation.method.lower()]["responses"]
        assert str(answer.status_code) in documented, (operation.path, answer.text)


def test_the_page_of_the_docs_names_every_operation():
    text = (ROOT / "docs" / "serve.md").read_text("utf-8")
    told = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/api/[^`]*)`", text))
    assert told == {(each.method, each.path) for each in OPERATIONS} | {("GET", "/api/openapi.json")}
