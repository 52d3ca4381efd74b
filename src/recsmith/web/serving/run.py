"""Runs the server until Ctrl-C: its socket, its address, its shutdown."""

import asyncio
import contextlib
import secrets
import socket
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from recsmith.errors import UsageError
from recsmith.files import read_bytes
from recsmith.plans import Plan
from recsmith.web.serving.app import make_app, make_server
from recsmith.web.serving.calls import Server
from recsmith.web.serving.endpoints import keep_read, plan_of_file
from recsmith.web.serving.kept_plans import KeptPlan, KeptPlans
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.uploads import ReadUpload, read_upload

LOOK_S = 0.5  # seconds between two checks of a connection whose request is being answered
FAREWELL_S = 2  # seconds that open connections get to finish when the server ends


def serve(
    files: Sequence[str],
    *,
    folder: str | None,
    runs: Sequence[str] = (),
    only_reads: bool = False,
    host: str,
    port: int,
    batch_size: int | None = None,
    on_address: Callable[[str, str], None],
    on_lost: Callable[[str], None],
    open_browser: bool,
) -> None:
    """Serve the page until Ctrl-C, with `files` open for every client.

    folder: of plans; None keeps them in memory. runs: folders of training runs that are shown. only_reads: nobody may
    change anything. on_address: called with the address with its token, and one that only shows, once the server can be
    reached. on_lost: called for each plan that could not be written by the end.

    Raises:
        UsageError: a file or the folder cannot be read, or the port is taken.
    """
    place = None if folder is None else str(Path(folder).absolute())
    settings = Settings(
        host=host, token=secrets.token_urlsafe(32), reader=secrets.token_urlsafe(32), folder=place,
        runs=tuple(str(Path(each).absolute()) for each in runs),
    )  # fmt: skip
    loaded = [read_upload(bytes(read_bytes(file)), Path(file).name, settings, batch_size) for file in files]
    with _bound(host, port) as bound:  # before the folder is made, so that a taken port leaves none
        server = _with_files(make_server(settings), loaded)
        where = f"http://{_shown(host)}:{bound.getsockname()[1]}/?token="
        first = next(iter(server.runs.found()), "") if len(runs) == 1 else ""
        at = f"#/run/{first}" if first else ""
        shows = f"{where}{settings.reader}{at}"
        address = shows if only_reads else f"{where}{settings.token}{at}"

        def on_start() -> None:
            on_address(address, shows)
            if open_browser:
                webbrowser.open(address)

        _run(server, bound, on_start)
    for kept in server.sessions.plans().unwritten():
        on_lost(f"plan '{kept.name}' is lost, for it could not be written: {kept.unwritten}")


def _with_files(server: Server, loaded: list[ReadUpload]) -> Server:
    """The server with files that are open for every client; plans are put into its folder, if it has one."""
    if server.settings.folder is not None:
        _put_once([plan_of_file(each) for each in loaded if isinstance(each.held, Plan)], server.sessions.plans())
        loaded = [each for each in loaded if not isinstance(each.held, Plan)]
    server.sessions.prepare = lambda session: [keep_read(each, session) for each in loaded].clear()
    return server


def _put_once(kept: list[KeptPlan], plans: KeptPlans) -> None:
    """Put plans into a folder, except those that it already has from an earlier run of this command."""
    there = {(each.digest, each.cost_model, each.origin) for each in plans.listing().plans}
    for each in kept:
        if (each.plan.digest, each.plan.cost_model, each.card.origin) not in there:
            plans.put(each)


def _shown(host: str) -> str:
    named = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return f"[{named}]" if ":" in named else named


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot listen on {host} port {port}: {reason}; choose another, or 0 for any") from None
    return made


class _Connection(H11Protocol):
    """A connection that is closed if the head of its next request is late, or if too many have no request.

    So a program on this machine that opens connections and sends nothing, or half of a request, blocks nobody.
    """

    settings: Settings
    answered = False  # whether any of its requests has been answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = time.monotonic()
        self.late = self.loop.call_later(self.settings.head_s, self._end_if_late)
        silent = [each for each in cast(set[_Connection], self.connections) if each.is_silent]
        if len(silent) > self.settings.silent:
            min(silent, key=lambda each: (each.answered, each.since)).transport.abort()  # first those without an answer

    def connection_lost(self, exc: Exception | None) -> None:
        self.late.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.since, self.answered = time.monotonic(), True
        super().on_response_complete()

    @property
    def is_silent(self) -> bool:
        """Whether the connection has no request that is being answered, and nothing left to send."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return (cycle is None or cycle.response_complete) and not self.transport.get_write_buffer_size()

    def _end_if_late(self) -> None:
        left = self.since + self.settings.head_s - time.monotonic()
        if self.is_silent and left <= 0:
            self.transport.abort()
        else:
            self.late = self.loop.call_later(max(left, LOOK_S), self._end_if_late)


class _Uvicorn(uvicorn.Server):
    """Uvicorn that reports its start, and ends searches before it waits for the clients that listen to them."""

    def __init__(self, config: uvicorn.Config, server: Server, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.served, self.on_start = server, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.served.searches.close()
        await super().shutdown(sockets)


def _run(server: Server, bound: socket.socket, on_start: Callable[[], None]) -> None:
    settings = server.settings
    connection = type("Connection", (_Connection,), {"settings": settings})
    config = uvicorn.Config(
        make_app(server), log_level="error", access_log=False, lifespan="on", server_header=False, date_header=False,
        timeout_graceful_shutdown=FAREWELL_S, limit_concurrency=settings.silent + settings.answering, ws="none",
        proxy_headers=False, http=connection,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after the shutdown
        asyncio.run(_Uvicorn(config, server, on_start).serve(sockets=[bound]))
