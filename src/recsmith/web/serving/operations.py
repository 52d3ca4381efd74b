"""What may be asked of the server, one row an operation: the routes and the OpenAPI document are both made of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from recsmith.web.serving import endpoints, messages, reports
from recsmith.web.serving.calls import Call

Body = Literal["file"] | type | None  # bytes of a file, a noun as JSON, or nothing


@dataclass(frozen=True)
class Query:
    """A word of the query."""

    name: str
    about: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation. answer: a noun; the media type of a file or a stream; None for an answer without a body.

    refusals: statuses besides those that every operation has.
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

    @property
    def name(self) -> str:
        """Its name in OpenAPI: that of the function that does it."""
        return self.run.__name__


NAME = Query("name", "The file's name; its ending says CSV.", {"type": "string"})
BATCH = Query("batch_size", "Of a CSV workload, which has no place for it.", {"type": "integer", "minimum": 1})
PLANS = Query("plan", "Ids of plans, the first being what the others are compared with.",
              {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 8}, required=True)  # fmt: skip
AGAINST = Query("against", "Id of a plan that the report compares with.", {"type": "string"})
BAD = (400, 408, 413, 422)  # what is sent breaks a rule, is late, too large, or cannot be read
STREAM, JSON, HTML = "text/event-stream", "application/json", "text/html"

OPERATIONS = (
    Operation("GET", "/api/choices", "What there is to choose from, and the limits of this server.",
              endpoints.choices, messages.Choices),
    Operation("GET", "/api/kept", "The workloads, clusters and plans that are kept here for you.",
              endpoints.kept, messages.Shelves),
    Operation("POST", "/api/files", "Open a file: a workload, a cluster, a plan or constraints.",
              endpoints.open_file, messages.Opened, 201, body="file", query=(NAME, BATCH), refusals=BAD),
    Operation("POST", "/api/samples", "Draw a sample of tables like those of a production model.",
              endpoints.sample, messages.WorkloadSummary, 201, body=messages.SampleAsked, refusals=BAD),
    Operation("POST", "/api/searches", "Start a search for a plan, in a process of its own; one at a time.",
              endpoints.start_search, messages.SearchState, 201, body=messages.SearchAsked,
              refusals=(*BAD, 404, 409, 429)),
    Operation("GET", "/api/searches", "Your searches, the oldest first.",
              endpoints.searches, messages.SearchStates),
    Operation("GET", "/api/searches/{id}", "Where a search is.",
              endpoints.search_state, messages.SearchState, refusals=(404,)),
    Operation("GET", "/api/searches/{id}/events", "The events of a search (SearchEvent), from the first, as they come.",
              endpoints.search_events, STREAM, refusals=(404,)),
    Operation("POST", "/api/searches/{id}/stop", "End a search with the best plan that it has found.",
              endpoints.stop_search, messages.SearchState, refusals=(404,)),
    Operation("DELETE", "/api/searches/{id}", "Cancel a search: its process ends, and there is no plan.",
              endpoints.cancel_search, messages.SearchState, refusals=(404,)),
    Operation("GET", "/api/plans/{id}", "A plan to look at.",
              endpoints.plan_view, messages.PlanView, refusals=(404,)),
    Operation("DELETE", "/api/plans/{id}", "Forget a plan.",
              endpoints.delete_plan, None, 204, refusals=(404,)),
    Operation("POST", "/api/plans/{id}/price", "What a plan costs once pieces are moved or its problem changes.",
              endpoints.price_edit, messages.PricedEdit, body=messages.PlanEdit, refusals=(*BAD, 404)),
    Operation("POST", "/api/plans/{id}/edits", "Keep a plan whose pieces are moved or whose problem changes.",
              endpoints.keep_edit, messages.PlanSummary, 201, body=messages.PlanEdit, refusals=(*BAD, 404)),
    Operation("GET", "/api/plans/{id}/file", "The file of a plan, which `recsmith simulate` and jobs read.",
              endpoints.plan_file, JSON, refusals=(404,)),
    Operation("GET", "/api/plans/{id}/report", "The report of a plan as one HTML file that opens offline.",
              reports.plan_report, HTML, query=(AGAINST,), refusals=(400, 404)),
    Operation("GET", "/api/comparison", "Plans side by side, and what changes from the first to each other.",
              endpoints.compare, messages.SideBySide, query=(PLANS,), refusals=(400, 404)),
)  # fmt: skip
