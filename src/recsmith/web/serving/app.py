"""The ASGI application: routes of the operations and of the page's files, wrapped in the guard."""

import asyncio
import functools
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from recsmith.errors import RecSmithError, printable_json
from recsmith.files.validators import adapter
from recsmith.web.serving.answers import SearchEvent
from recsmith.web.serving.calls import Server, read_call
from recsmith.web.serving.endpoints import Events
from recsmith.web.serving.folder import PlanFolder
from recsmith.web.serving.guard import Guard
from recsmith.web.serving.kept_plans import KeptPlans
from recsmith.web.serving.operations import OPERATIONS, Operation, openapi_json
from recsmith.web.serving.plan_endpoints import Attachment
from recsmith.web.serving.pricing import Benches
from recsmith.web.serving.run_folders import RunFolders
from recsmith.web.serving.searches import Searches
from recsmith.web.serving.sessions import PlanShelf, Sessions
from recsmith.web.serving.settings import Refused, Settings, status_of
from recsmith.web.serving.views import choices, plan_summary

Endpoint = Callable[[Request], Awaitable[Response]]
INDEX = "app.html"
ONLY_SHOWS = "this address only shows, and changes nothing; ask whoever shared it, or serve a folder of yours"
NO_PAGE = b"<!doctype html><title>RecSmith</title><p>This installation has no page; its JSON API is complete."


def make_server(settings: Settings) -> Server:
    """The objects that live as long as the server; plans are in its folder, or in memory for each client."""
    runs = RunFolders(settings.runs, settings.folder)
    return Server(settings, Sessions(settings, plans_of(settings)), Searches(settings), Benches(settings.warm), runs)


def plans_of(settings: Settings) -> Callable[[], KeptPlans]:
    """A function that returns the store of plans for a new session."""
    if settings.folder is None:
        return lambda: PlanShelf(settings.kept_plans, plan_summary)
    folder = PlanFolder(Path(settings.folder), settings, plan_summary)
    return lambda: folder


def make_app(server: Server) -> ASGIApp:
    """The ASGI application of a server."""
    routes = [Route(each.path, _endpoint(each, server), methods=[each.method]) for each in OPERATIONS]
    routes.append(Route("/api/openapi.json", _document))
    routes += [Route(path, _always(data, kind)) for path, (data, kind) in page_files().items()]
    errors: Any = {RecSmithError: _refused, HTTPException: _not_found}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await server.searches.warm_up()
        ahead = asyncio.create_task(server.work(choices, server.settings))  # the first page need not wait for it
        yield
        await ahead
        await server.searches.close()

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=errors)
    return Guard(app, server.settings, server.sessions)


def _endpoint(operation: Operation, server: Server) -> Endpoint:
    """The endpoint that answers the requests of an operation."""
    settings = server.settings
    most_bytes = settings.upload_bytes if operation.body == "file" else settings.body_bytes

    @functools.wraps(operation.run)
    async def endpoint(request: Request) -> Response:
        if operation.changes and request.scope["session"].reads:
            raise Refused(403, ONLY_SHOWS)
        call = await read_call(request, server, most_bytes)
        return _answer(await operation.run(call), operation)

    return endpoint


def _answer(answer: Any, operation: Operation) -> Response:
    if isinstance(answer, Events):
        return StreamingResponse(_stream(answer), media_type=str(operation.answer))
    if isinstance(answer, Attachment):
        headers = {"content-disposition": answer.disposition}
        return Response(answer.text, media_type=answer.kind, headers=headers)
    if answer is None:
        return Response(status_code=operation.status)
    return Response(dumped(answer), status_code=operation.status, media_type="application/json")


def dumped(answer: object) -> str:
    """An answer as JSON, with every field, and control characters escaped."""
    return printable_json(adapter(type(answer)).dump_json(answer).decode())


async def _stream(events: Events) -> AsyncIterator[str]:
    async for event in events.listen:
        yield _sent(event)


def _sent(event: SearchEvent | None) -> str:
    """A server-sent event as text; a comment for None, which keeps the connection alive."""
    return ":\n\n" if event is None else f"id: {event.seq}\nevent: {event.kind}\ndata: {dumped(event)}\n\n"


def _always(data: bytes, kind: str) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        return Response(data, media_type=kind)

    return endpoint


async def _document(_: Request) -> Response:
    return Response(openapi_json(), media_type="application/json")


async def _refused(_: Request, error: RecSmithError) -> Response:
    return JSONResponse({"error": str(error)}, status_code=status_of(error))


async def _not_found(_: Request, error: HTTPException) -> Response:
    sentences = {404: "there is nothing at this address", 405: "this address does not take this method"}
    sentence = sentences.get(error.status_code, str(error.detail))
    return JSONResponse({"error": sentence}, status_code=error.status_code, headers=error.headers)


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """(bytes, media type) of every file of the page, by its address."""
    folder = resources.files("recsmith.web") / "static" / "app"
    found = {f"/{name}": (file.read_bytes(), _kind(name)) for name, file in _files(folder)}
    index = found.pop(f"/{INDEX}", (NO_PAGE, "text/html"))
    return found | {"/": index}


def _files(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    if not folder.is_dir():
        return []
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        found += _files(entry, f"{name}/") if entry.is_dir() else [(name, entry)]
    return found


def _kind(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
