"""All operations of the server, one entry each: routes and the OpenAPI document are built from them."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from recsmith._version import __version__
from recsmith.files import Raw
from recsmith.reports.advice import ToldAdvice
from recsmith.web.serving import answers, endpoints, plan_endpoints, requests
from recsmith.web.serving.answers import Refusal, SearchEvent
from recsmith.web.serving.calls import Call
from recsmith.web.serving.edits import DraftChange, HandDraft, PlanEdit

Body = Literal["file"] | type | None  # bytes of a file, a noun as JSON, or nothing
WHY = {
    400: "What was sent breaks a rule.",
    401: "There is no session, and no token.",
    403: "The request comes from another site, or would change something by an address that only shows.",
    404: "No such thing is kept here.",
    408: "The request did not come in whole in time.",
    409: "A search of yours is running, or the same was changed elsewhere meanwhile.",
    413: "The request, or its problem, is too large.",
    421: "The Host header names another machine.",
    422: "The file or the body cannot be read as what it should be.",
    429: "Too many searches are waiting.",
    507: "The folder of plans cannot be written to.",
}
ALWAYS = (401, 403, 421)
PLACE = "#/components/schemas/{model}"


@dataclass(frozen=True)
class Query:
    """A parameter of the query."""

    name: str
    about: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation. answer: a noun; the media type of a file or a stream; None for an answer without a body.

    refusals: HTTP statuses in addition to those of every operation. harmless: it changes nothing, although not a GET.
    """

    method: str
    path: str
    about: str
    run: Callable[[Call], Awaitable[Any]]
    answer: type | str | None
    status: int = 200
    body: Body = None
    query: tuple[Query, ...] = ()
    refusals: tuple[int, ...] = ()
    harmless: bool = False

    @property
    def changes(self) -> bool:
        """Whether the operation is refused to a session that may only read."""
        return self.method != "GET" and not self.harmless

    @property
    def name(self) -> str:
        """The operation's name in OpenAPI: that of its function."""
        return self.run.__name__


NAME = Query("name", "The file's name; its ending says CSV.", {"type": "string"})
BATCH = Query("batch_size", "Of a CSV workload, which has no place for it.", {"type": "integer", "minimum": 1})
ASSUME = Query("assume", "Whether a CSV without a batch size is read with an assumed one.", {"type": "boolean"})

PLANS = Query("plan", "Ids of plans, the first being what the others are compared with.",
              {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 8}, required=True)  # fmt: skip

AGAINST = Query("against", "Id of a plan that the report compares with.", {"type": "string"})
TABLE = Query("name", "Of the table.", {"type": "string"}, required=True)
BAD = (400, 408, 413, 422)  # the request breaks a rule, is late, too large, or cannot be read
READ = (400, 404, 422)  # no such plan, or its file is damaged
WRITTEN = (*BAD, 404, 409, 507)
STREAM, JSON, HTML = "text/event-stream", "application/json", "text/html"

OPERATIONS = (
    Operation("GET", "/api/choices", "What there is to choose from, and the limits of this server.",
              endpoints.choices, answers.Choices),
    Operation("GET", "/api/kept", "The workloads, clusters, plans and streams that are kept here for you.",
              endpoints.kept, answers.Shelves),
    Operation("POST", "/api/files", "Open a file: tables, a cluster, a plan, constraints, a log, arms of a stream.",
              endpoints.open_file, answers.Opened, 201, body="file", query=(NAME, BATCH, ASSUME), refusals=BAD),
    Operation("PATCH", "/api/workloads/{id}", "Say what a file did not tell of its tables.",
              endpoints.change_workload, answers.WorkloadSummary, body=requests.AssumedChange, refusals=(*BAD, 404)),
    Operation("POST", "/api/running/{id}/plan", "Price the plan that a job runs, and keep it.",
              endpoints.price_running, answers.PlanSummary, 201, body=requests.RunningOn, refusals=(*BAD, 404)),
    Operation("GET", "/api/streams/{id}", "How a stream is best learned, as `recsmith bench online` found it.",
              endpoints.stream_view, answers.StreamView, refusals=(404,)),
    Operation("GET", "/api/sweeps/{id}", "A sweep over numbers of devices, as its file says it, with its knees.",
              endpoints.sweep_view, answers.SweepView, refusals=(404,)),
    Operation("GET", "/api/runs/{id}", "A training run so far: loss, speed, parts of a step, alarms, its plan.",
              endpoints.run_view, answers.RunView, refusals=(404,)),
    Operation("POST", "/api/samples", "Draw a sample of tables like those of a production model.",
              endpoints.sample, answers.WorkloadSummary, 201, body=requests.SampleRequest, refusals=BAD),
    Operation("POST", "/api/searches", "Start a search for a plan, in a process of its own; one at a time.",
              endpoints.start_search, answers.SearchState, 201, body=requests.SearchRequest,
              refusals=(*BAD, 404, 409, 429)),
    Operation("GET", "/api/searches", "Your searches, the oldest first.",
              endpoints.searches, answers.SearchStates),
    Operation("GET", "/api/searches/{id}", "Where a search is.",
              endpoints.search_state, answers.SearchState, refusals=(404,)),
    Operation("GET", "/api/searches/{id}/events", "The events of a search (SearchEvent), from the first, as they come.",
              endpoints.search_events, STREAM, refusals=(404,)),
    Operation("POST", "/api/searches/{id}/stop", "End a search with the best plan that it has found.",
              endpoints.stop_search, answers.SearchState, refusals=(404,)),
    Operation("DELETE", "/api/searches/{id}", "Cancel a search: its process ends, and there is no plan.",
              endpoints.cancel_search, answers.SearchState, refusals=(404,)),
    Operation("GET", "/api/plans/{id}", "A plan to look at.",
              plan_endpoints.plan_view, answers.PlanView, refusals=READ),
    Operation("PATCH", "/api/plans/{id}", "Name a plan, or note something of it.",
              plan_endpoints.change_plan, answers.PlanSummary, body=requests.PlanChange, refusals=WRITTEN),
    Operation("DELETE", "/api/plans/{id}", "Delete a plan, so that it can be undone.",
              plan_endpoints.delete_plan, None, 204, refusals=(404, 409, 507)),
    Operation("POST", "/api/plans/{id}/restore", "Undo the deletion of a plan.",
              plan_endpoints.restore_plan, answers.PlanSummary, refusals=(*READ, 409, 507)),
    Operation("POST", "/api/plans/{id}/copies", "Keep a copy of a plan.",
              plan_endpoints.copy_plan, answers.PlanSummary, 201, body=requests.PlanCopy, refusals=WRITTEN),
    Operation("POST", "/api/plans/{id}/price", "What a plan costs once pieces are moved or its problem changes.",
              plan_endpoints.price_edit, answers.PricedEdit, body=PlanEdit, refusals=(*BAD, 404), harmless=True),
    Operation("GET", "/api/plans/{id}/seconds", "Seconds that each table costs the device that pays most for it.",
              plan_endpoints.table_seconds, answers.TableSeconds, refusals=READ),
    Operation("GET", "/api/plans/{id}/table", "The step without a table, and the table's best other place.",
              plan_endpoints.table_alone, answers.TableAlone, query=(TABLE,), refusals=READ),
    Operation("PUT", "/api/plans/{id}/draft", "Keep changes by hand that are no plan yet, step by step.",
              plan_endpoints.keep_draft, HandDraft, body=DraftChange, refusals=WRITTEN),
    Operation("POST", "/api/plans/{id}/edits", "Keep a plan whose pieces are moved or whose problem changes.",
              plan_endpoints.keep_edit, answers.PlanSummary, 201, body=PlanEdit, refusals=(*BAD, 404)),
    Operation("GET", "/api/plans/{id}/advice", "Which changes of a plan's job pay, as `recsmith advise`.",
              plan_endpoints.plan_advice, ToldAdvice, refusals=(400, 404, 409, 422, 429)),
    Operation("GET", "/api/plans/{id}/file", "The file of a plan, which `recsmith simulate` and jobs read.",
              plan_endpoints.plan_file, JSON, refusals=READ),
    Operation("GET", "/api/plans/{id}/report", "The report of a plan as one HTML file that opens offline.",
              plan_endpoints.plan_report, HTML, query=(AGAINST,), refusals=READ),
    Operation("GET", "/api/comparison", "Plans side by side, and what changes from the first to each other.",
              plan_endpoints.compare, answers.SideBySide, query=(PLANS,), refusals=READ),
)  # fmt: skip


def openapi() -> Raw:
    """The OpenAPI document, as plain data."""
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
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


@cache
def openapi_json() -> bytes:
    """The OpenAPI document as JSON, built at the first request, so that the server starts without it."""
    return json.dumps(openapi()).encode()


def _nouns() -> list[type]:
    """Every noun that a body or an answer consists of."""
    nouns = [each for operation in OPERATIONS for each in (operation.body, operation.answer)]
    return list(dict.fromkeys(each for each in (*nouns, Refusal, SearchEvent) if isinstance(each, type)))


def _schemas() -> Raw:
    """JSON Schema of all nouns, by name."""
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
    parameters = [_parameter(each) for each in operation.query]
    if "{id}" in operation.path:
        parameters.insert(0, {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    if parameters:
        made["parameters"] = parameters
    if operation.body is not None:
        made["requestBody"] = {"required": True, "content": _content(operation.body)}
    return made


def _parameter(query: Query) -> Raw:
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
