"""A server of the page, spoken to without a network."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the page needs Starlette")
pytest.importorskip("httpx", reason="Starlette's test client needs httpx")

import httpx
from starlette.types import ASGIApp

from recsmith.web.serving.app import make_app, make_server
from recsmith.web.serving.calls import Server
from recsmith.web.serving.settings import Settings

ORIGIN = "http://127.0.0.1:8000"
TOKEN = "a-token-of-the-tests"


@dataclass
class Client:
    """Asks a server, in its process; the searches that it starts are processes all the same."""

    server: Server
    app: ASGIApp

    def ask(self, method: str, path: str, **words: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {TOKEN}", **words.pop("headers", {})}
        return self.bare(method, path, headers=headers, **words)

    def bare(self, method: str, path: str, **words: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                return await client.request(method, path, **words)

        self.server.threads = None  # which belong to the loop of one request here
        with ThreadPoolExecutor(1) as thread:  # Playwright keeps a loop running in the thread of tests
            return thread.submit(asyncio.run, asked()).result()

    def upload(self, data: bytes | str, name: str = "file.json", **query: Any) -> httpx.Response:
        content = data.encode() if isinstance(data, str) else data
        return self.ask("POST", "/api/files", params={"name": name, **query}, content=content)


def client_of(**words: Any) -> Client:
    server = make_server(Settings(token=TOKEN, **words))
    return Client(server, make_app(server))
