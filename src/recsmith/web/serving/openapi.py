"""The OpenAPI document of the operations."""

from typing import Any

from recsmith._version import __version__
from recsmith.files import Raw
from recsmith.web.serving.messages import Refusal, SearchEvent
from recsmith.web.serving.operations import OPERATIONS, Operation, Query

WHY = {
    400: "What was sent breaks a rule.",
    401: "There is no session, and no token.",
    403: "The request comes from another site.",
    404: "No such thing is kept here.",
    408: "The request did not come in whole in time.",
    409: "A search of yours is running.",
    413: "The request, or its problem, is too large.",
    421: "The Host header names another machine.",
    422: "The file or the body cannot be read as what it should be.",
    429: "Too many searches are waiting.",
}
ALWAYS = (401, 403, 421)
PLACE = "#/components/schemas/{model}"


def openapi() -> Raw:
    """The document, as plain data."""
    paths: Raw = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "RecSmith",
            "version": __version__,
            "description": "Plans for embedding tables, on this machine. Bytes and seconds throughout; docs/serve.md.",
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _nouns() -> list[type]:
    """Every noun that a body or an answer is made of."""
    told = [each for operation in OPERATIONS for each in (operation.body, operation.answer)]
    return list(dict.fromkeys(each for each in (*told, Refusal, SearchEvent) if isinstance(each, type)))


def _schemas() -> Raw:
    """JSON Schema of all nouns, in one list."""
    from pydantic import TypeAdapter

    asked = {operation.body for operation in OPERATIONS}
    inputs: list[Any] = [
        (noun.__name__, "validation" if noun in asked else "serialization", TypeAdapter(noun)) for noun in _nouns()
    ]
    top, shared = TypeAdapter.json_schemas(inputs, ref_template=PLACE)
    schemas: Raw = dict(shared.get("$defs", {}))
    for (name, _), schema in top.items():
        if schema != {"$ref": PLACE.format(model=name)}:
            schemas[str(name)] = schema
    return schemas


def _operation(operation: Operation) -> Raw:
    made: Raw = {
        "operationId": operation.name,
        "summary": operation.about,
        "responses": {
            str(operation.status): _answer(operation),
            **{str(status): _refusal(status) for status in sorted((*operation.refusals, *ALWAYS))},
        },
    }
    words = [_word(each) for each in operation.query]
    if "{id}" in operation.path:
        words.insert(0, {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    if words:
        made["parameters"] = words
    if operation.body is not None:
        made["requestBody"] = {"required": True, "content": _content(operation.body)}
    return made


def _word(query: Query) -> Raw:
    return {
        "name": query.name, "in": "query", "required": query.required, "description": query.about,
        "schema": query.schema,
    }  # fmt: skip


def _content(body: type | str) -> Raw:
    if isinstance(body, str):
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {"application/json": {"schema": _reference(body)}}


def _answer(operation: Operation) -> Raw:
    if operation.answer is None:
        return {"description": "Done."}
    if isinstance(operation.answer, str):
        return {"description": operation.about, "content": {operation.answer: {}}}
    return {"description": operation.about, "content": {"application/json": {"schema": _reference(operation.answer)}}}


def _refusal(status: int) -> Raw:
    return {"description": WHY[status], "content": {"application/json": {"schema": _reference(Refusal)}}}


def _reference(noun: type) -> Raw:
    return {"$ref": PLACE.format(model=noun.__name__)}
