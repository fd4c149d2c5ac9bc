"""What is answered over HTTP: a raw ASGI application with a small table of routes (server.md section 2).

Health needs no credentials and names no secrets. Answers of routes are text; what is refused is JSON,
`{"code": …, "error": …}`, where the code is the status's reason phrase in lower case.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import trio

from cronoq_sansio.clock import seconds
from cronoq_sansio.limits import HTTP_SEND_TIMEOUT, MAX_HTTP_DISCARD
from cronoq_sansio.values import value

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

TEXT = b"text/plain; charset=utf-8"
JSON = b"application/json"


@value
class Answer:
    """One HTTP answer."""

    status: int
    content_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class HttpApi:
    """The application: `await api(scope, receive, send)` answers one request."""

    def __init__(self, unready: Callable[[], str]) -> None:
        """`unready` says why the server cannot take work now: `standby`, `stopping`, `store`; empty when it can."""
        self._unready = unready
        self._routes: dict[str, dict[str, Callable[[], Answer]]] = {
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer. A request's body, if there is one, is read to a bound and thrown away: no route takes one."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})  # before it was accepted: HTTP 403
            return
        answer = self.answer(scope["method"], scope["raw_path"])
        await _discard(receive)
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", str(len(answer.body)).encode()),
            (b"cache-control", b"no-store"),
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def answer(self, method: str, target: bytes) -> Answer:
        """The answer to a request with this method and this target, still escaped and without its query."""
        methods = self._routes.get(_path(target))
        if methods is None:
            return refusal(404, "there is nothing at this path")
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            known = sorted({*methods, "HEAD"} if "GET" in methods else methods)
            allow = ", ".join(known)
            return refusal(405, f"allowed here: {allow}", ((b"allow", allow.encode()),))
        return handler()

    def _healthz(self) -> Answer:
        """The process runs and its loop turns."""
        return Answer(200, TEXT, b"ok")

    def _readyz(self) -> Answer:
        """Work would be taken now."""
        reason = self._unready()
        return Answer(503, TEXT, reason.encode()) if reason else Answer(200, TEXT, b"ready")


def refusal(status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    """A JSON answer that says what is wrong."""
    code = HTTPStatus(status).phrase.lower().replace(" ", "_")
    body = json.dumps({"code": code, "error": text}, sort_keys=True, separators=(",", ":"))
    return Answer(status, JSON, body.encode(), headers)


def _path(target: bytes) -> str:
    """The path of a request target, which may also be a whole URL (RFC 9112 section 3.2.2)."""
    text = target.decode("latin-1")
    if text.startswith("/"):
        return text
    try:
        found = urlsplit(text)
    except ValueError:  # a host in brackets that is no address
        return ""
    return found.path if found.scheme in ("http", "https") else ""


async def _discard(receive: Receive) -> None:
    """Read the body, as far as it is short and comes soon."""
    size = 0
    with trio.move_on_after(seconds(HTTP_SEND_TIMEOUT)):
        while size <= MAX_HTTP_DISCARD:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return
