"""A request as operations see it: the session, the parameters of path and query, and the body as a noun."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request

from recsmith.errors import UsageError
from recsmith.files import decode, parse_json
from recsmith.web.serving.pricing import Benches
from recsmith.web.serving.run_folders import RunFolders
from recsmith.web.serving.searches import LOOK_S, Searches
from recsmith.web.serving.sessions import Session, Sessions
from recsmith.web.serving.settings import Refused, Settings

THREADS = 2  # threads that read files and price plans: one for a large file, one that answers meanwhile
LONGEST_NUMBER = 15  # digits
REQUEST = "the request"  # name of a body in errors

Noun = TypeVar("Noun")
Found = TypeVar("Found")


@dataclass
class Server:
    """The objects that live as long as the server."""

    settings: Settings
    sessions: Sessions
    searches: Searches
    benches: Benches
    runs: RunFolders
    threads: anyio.CapacityLimiter | None = None

    async def work(self, function: Callable[..., Found], *arguments: object) -> Found:
        """Run a function that takes more than a moment in a thread, so that the event loop keeps answering."""
        self.threads = self.threads or anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self.threads)


async def _never() -> bool:
    return False


@dataclass(frozen=True)
class Call:
    """One request.

    key: the id in its path, if there is one. last_event: the number of the last event that the client received, or -1.
    has_gone: whether the client has closed the connection.
    """

    server: Server
    session: Session
    query: QueryParams
    key: str
    body: bytes = b""
    last_event: int = -1
    has_gone: Callable[[], Awaitable[bool]] = _never

    async def while_heard(self, answer: Coroutine[Any, Any, Found]) -> Found:
        """Wait for an answer that takes long; cancel the work if the client closes the connection."""
        task = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
                if await self.has_gone():
                    raise Refused(409, "nobody waits for the answer any more")
            return task.result()
        finally:
            task.cancel()

    def noun(self, kind: type[Noun]) -> Noun:
        """The body as a noun; CorruptFile (422) if it is not one, UsageError (400) if it is not UTF-8."""
        try:
            text = self.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{REQUEST} is not UTF-8 text (byte {error.start}); send JSON in UTF-8") from None
        return decode(kind, parse_json(text, REQUEST), REQUEST)

    def number(self, name: str) -> int | None:
        """A whole number in the query; None if it is absent."""
        word = self.query.get(name)
        if word is None or word == "":
            return None
        if not _is_number(word) or len(word) > LONGEST_NUMBER:
            raise UsageError(f"{name} is '{word[:60]}'; write a whole number such as 8192")
        return int(word)


async def read_call(request: Request, server: Server, most_bytes: int) -> Call:
    """The call for a request; its body is read up to a limit in bytes and in seconds."""
    try:
        async with asyncio.timeout(server.settings.body_s):
            body = await _read_body(request, most_bytes)
    except TimeoutError:
        raise Refused(408, f"the request did not come in whole within {server.settings.body_s:g} s") from None
    return Call(
        server, cast(Session, request.scope["session"]), request.query_params, request.path_params.get("id", ""), body,
        _last_event(request.headers.get("last-event-id", "")), request.is_disconnected,
    )  # fmt: skip


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _last_event(text: str) -> int:
    """The number of the last event that a client received; -1 if it states none."""
    return int(text) if _is_number(text) and len(text) <= LONGEST_NUMBER else -1


async def _read_body(request: Request, most_bytes: int) -> bytes:
    said = request.headers.get("content-length", "")
    if _is_number(said) and (len(said) > LONGEST_NUMBER or int(said) > most_bytes):
        _refuse_size(most_bytes)
    body = bytearray()
    try:
        async for block in request.stream():
            body += block
            if len(body) > most_bytes:
                _refuse_size(most_bytes)
    except ClientDisconnect:
        raise Refused(400, "the request ended before it was whole") from None
    return bytes(body)


def _refuse_size(most_bytes: int) -> Any:
    raise Refused(413, f"the request is larger than {most_bytes:,} bytes; large workloads are for the command line")
