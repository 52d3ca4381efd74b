"""Which requests are let in: every request passes here first, and every answer gets its headers here.

1. Host must name this machine, so that no foreign DNS name can lead here (DNS rebinding).
2. Origin, if a browser sends it, must be the page's own; a request that changes something needs Origin, or the token.
3. The token in the printed address opens a session, which is then identified by its cookie; programs send the token
as `Authorization: Bearer`. It is compared in constant time. A second token opens sessions that may only read; app.py
refuses them operations that change something.
"""

import hashlib
import hmac
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recsmith.web.serving.sessions import Session, Sessions
from recsmith.web.serving.settings import LOOPBACK, Settings

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
SAFE = ("GET", "HEAD")  # methods that change nothing
CLOSED = """<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>RecSmith: open it by its address</title>
<main>
<h1>Open this page by the address that was printed</h1>
<p>Each start of <code>recsmith serve</code> prints an address with a token of its own, and this tab has none of it.</p>
<ul>
<li>If it runs, open the address that stands in its terminal.</li>
<li>If it has ended, start it again with the folder that it had: <code>recsmith serve FOLDER</code>.</li>
</ul>
<p>Plans, and moves that were not kept yet, are in that folder.</p>
</main>
</html>
"""


class Guard:
    """The ASGI application around all others; a request that passes has its session in `scope["session"]`."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self.app, self.settings, self.sessions = app, settings, sessions
        self.cookie = "recsmith-" + hashlib.sha256(settings.token.encode()).hexdigest()[:12]
        self.hosts = _own_names(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why it is refused."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send) if scope["type"] == "lifespan" else None
        sealed = _sealing(send)
        refusal = self._refusal(scope)
        if refusal is None:
            return await self.app(scope, receive, sealed)
        return await refusal(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _host_name(host) not in self.hosts and not _is_address(_host_name(host), self.settings.host):
            return _said(421, "the Host of this request is not this server's; open the address that was printed")
        origin = headers.get("origin")
        if origin is not None and _place_of(origin) != host.lower():
            return _said(403, "this request comes from another site's page; use the page of this server")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _said(403, "this request comes from another site's page; use the page of this server")
        return self._let_in(scope, headers, origin)

    def _let_in(self, scope: Scope, headers: Headers, origin: str | None) -> Response | None:
        """None if the scope now has its session; otherwise the redirection that opens one, or a refusal."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        reads = self._reads(given.strip()) if scheme.lower() == "bearer" else None
        if reads is not None:
            scope["session"] = self.sessions.of_programs(reads=reads)
            return None
        session = self._session(headers)
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        reads = self._reads(asked) if scope["path"] == "/" and scope["method"] in SAFE else None
        if reads is not None:
            return self._opened(session if session and session.reads == reads else self.sessions.open(reads=reads))
        if session is None:
            return _closed(scope["path"])
        if scope["method"] not in SAFE and origin is None:
            return _said(403, "a request that changes something needs the Origin of this page, or the token")
        scope["session"] = session
        return None

    def _reads(self, given: str) -> bool | None:
        """Whether the token lets its client only read; None if it is not one of our tokens."""
        if hmac.compare_digest(given.encode(), self.settings.token.encode()):
            return False
        is_reader = hmac.compare_digest(given.encode(), self.settings.reader.encode())
        return True if is_reader and self.settings.reader else None

    def _session(self, headers: Headers) -> Session | None:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        return self.sessions.find(cookies[self.cookie].value) if self.cookie in cookies else None

    def _opened(self, session: Session) -> Response:
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self.cookie, session.key, httponly=True, samesite="strict", path="/")
        return answer


def _closed(path: str) -> Response:
    if path.startswith("/api/"):
        return _said(401, "this request has no session; send the token that was printed, or open its address")
    return HTMLResponse(CLOSED, status_code=401)


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status_code=status)


def _sealing(send: Send) -> Send:
    """A `send` that adds the headers of HEADERS to every answer that does not set them itself."""

    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sealed


def _own_names(host: str) -> frozenset[str]:
    """Names of this machine that a Host header may have; IP addresses need none, because DNS is not involved."""
    names = {"localhost", host.lower()}
    if host not in LOOPBACK:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def _host_name(host: str) -> str:
    """The host in a Host header, without the port; IPv6 addresses without brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _place_of(origin: str) -> str | None:
    """Host and port of an Origin header; None if it is not an address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_address(name: str, host: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or host not in LOOPBACK
