"""Runs the server until Ctrl-C: its socket, its address, its end."""

import asyncio
import contextlib
import secrets
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from recsmith.errors import UsageError
from recsmith.files import read_bytes
from recsmith.web.serving.app import make_app, make_server
from recsmith.web.serving.calls import Server
from recsmith.web.serving.endpoints import keep_read
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.uploads import ReadUpload, read_upload

FAREWELL_S = 2  # seconds that open connections have once the server ends
MOST_CONNECTIONS = 128


def serve(
    files: Sequence[str],
    *,
    host: str,
    port: int,
    batch_size: int | None = None,
    on_address: Callable[[str], None],
    open_browser: bool,
) -> None:
    """Serve the page until Ctrl-C, with files that every client finds opened.

    on_address: told the address with its token, once the server can be reached.

    Raises:
        UsageError: a file cannot be read, or the port is taken.
    """
    settings = Settings(host=host, token=secrets.token_urlsafe(32))
    server = make_server(settings)
    loaded = [_loaded(file, settings, batch_size) for file in files]
    server.sessions.prepare = lambda session: [keep_read(each, session) for each in loaded].clear()
    with _bound(host, port) as bound:
        address = f"http://{_shown(host)}:{bound.getsockname()[1]}/?token={settings.token}"

        def on_start() -> None:
            on_address(address)
            if open_browser:
                webbrowser.open(address)

        _run(server, bound, on_start)


def _loaded(file: str, settings: Settings, batch_size: int | None) -> ReadUpload:
    return read_upload(bytes(read_bytes(file)), Path(file).name, settings, batch_size)


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


class _Uvicorn(uvicorn.Server):
    """Uvicorn, which says when it has started, and ends searches before it waits for those who listen to them."""

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
    config = uvicorn.Config(
        make_app(server), log_level="error", access_log=False, lifespan="on", server_header=False, date_header=False,
        timeout_graceful_shutdown=FAREWELL_S, limit_concurrency=MOST_CONNECTIONS, ws="none", proxy_headers=False,
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it once more when all has ended
        asyncio.run(_Uvicorn(config, server, on_start).serve(sockets=[bound]))
