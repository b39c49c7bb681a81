"""Security of the page: who may send a request, and what a page may load.

    loopback      listens on 127.0.0.1 unless --host names another address
    token         a random token for each start, in the first url; then in a cookie that scripts cannot read and that
                  other sites do not send (HttpOnly, SameSite=Strict; over TLS also Secure). curl sends
                  `Authorization: Bearer TOKEN`
    Host          must be one of the names under which the inspector listens: DNS rebinding has another one
    Origin        of a request from a page must be the same; Sec-Fetch-Site must not be another site
    POST          has JSON and the header X-Rillet-Inspector, which a form of another site cannot send
    CSP           scripts and styles from the inspector only; no frames, no forms, no other host

Keys, fields and values reach the page as text nodes, never as HTML (Preact escapes); the policy is the second line.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

HEADER = "x-rillet-inspector"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
MOST_BODY = 1 << 20
"""The most bytes of a request's body."""

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def new_token() -> str:
    """Return a new random token."""
    return secrets.token_urlsafe(24)


class RequestGuard:
    """ASGI middleware that refuses a request unless it has the token and comes from the inspector's own page."""

    def __init__(self, app: App, token: str, names: Iterable[str], port: int) -> None:
        self._app = app
        self._token = token
        self._port = port
        self._cookie = f"rillet-inspect-{port}"
        self._hosts = {_host(name, port) for name in names} | {name.lower() for name in names if port in (80, 443)}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        status, problem = self._problem(scope, headers, query)
        if status:
            await _refuse(send, status, problem)
            return
        given = query.get("token", [""])[0]
        if given and scope["path"] == "/" and scope["method"] == "GET":
            await self._welcome(send, query, scope["scheme"] == "https")
            return
        await self._app(scope, receive, _with_headers(send))

    def _problem(self, scope: Message, headers: dict[str, str], query: dict[str, list[str]]) -> tuple[int, str]:
        """Return the status and the reason for refusing the request; 0 if it is accepted."""
        if headers.get("host", "").lower() not in self._hosts:
            return 421, "this is not the name of the inspector (Host): use the printed url, or --allow-host NAME"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
            return 403, "the request comes from another origin"
        # A link on another site, or a typed url, may open the first page; nothing else may come from elsewhere.
        page = scope["path"] == "/" and scope["method"] == "GET"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not (
            page and headers.get("sec-fetch-mode") == "navigate"
        ):
            return 403, "the request comes from another site"
        if not self._knows(headers, query):
            return 401, "the token is missing or wrong: open the url that `rillet inspect` printed"
        if scope["method"] in ("GET", "HEAD"):
            return 0, ""
        if HEADER not in headers or not headers.get("content-type", "").startswith("application/json"):
            return 403, f"a request that acts needs the header {HEADER} and a body in JSON"
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > MOST_BODY:
            return 413, f"a body has at most {MOST_BODY} bytes, and its length"
        return 0, ""

    def _knows(self, headers: dict[str, str], query: dict[str, list[str]]) -> bool:
        given = [query.get("token", [""])[0]]
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
            given.append(morsel.value if morsel is not None else "")
        except CookieError:
            pass
        return any(hmac.compare_digest(one.encode(), self._token.encode()) for one in given)

    async def _welcome(self, send: Send, query: dict[str, list[str]], secure: bool) -> None:
        """Set the cookie, and send the browser to the same page without the token in its address."""
        rest = urlencode([(name, one) for name, values in query.items() for one in values if name != "token"])
        cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/{'; Secure' if secure else ''}"
        location = "/" + (f"?{rest}" if rest else "")
        await send({"type": "http.response.start", "status": 303, "headers": [
            (b"location", location.encode("latin-1")), (b"set-cookie", cookie.encode()),
            (b"cache-control", b"no-store"), (b"content-length", b"0"), *_HEADERS]})  # fmt: skip
        await send({"type": "http.response.body", "body": b""})


def _host(name: str, port: int) -> str:
    name = name.lower()
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"{name}:{port}"


async def _refuse(send: Send, status: int, problem: str) -> None:
    body = problem.encode() + b"\n"
    await send({"type": "http.response.start", "status": status, "headers": [
        (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"), *_HEADERS]})  # fmt: skip
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            message = {**message, "headers": [*message.get("headers", ()),
                                              *(one for one in _HEADERS if one[0] not in present)]}  # fmt: skip
        await send(message)

    return wrapped
