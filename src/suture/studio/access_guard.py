"""AccessGuard: admits only the user's own browser on this machine."""

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_HOSTS = ("127.0.0.1", "localhost")
"""Host names that a browser on this machine, or at the other end of an SSH tunnel, uses."""
MAX_BODY_BYTES = 32 * 2**20
COOKIE_AGE_S = 30 * 24 * 3600
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; frame-ancestors 'none'"
)
"""Policy of a report: its scripts are inline, so they run without access to the studio."""
_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_SAFE_METHODS = ("GET", "HEAD")


class AccessGuard:
    """Middleware that checks host, origin, token and size of each request, and sets the security headers.

    The first visit brings the token in the address; it becomes a cookie, and the address loses it.

    Args:
        app: The app to guard.
        token: Secret of this studio.
        cookie: Name of the cookie; browsers share cookies between the ports of a host.
        read_only: Reject every request that could change something.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, read_only: bool = False) -> None:
        self.app = app
        self.token = token
        self.cookie = cookie
        self.read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, "The request is too large.")
            return message

        await self.app(scope, receive_limited, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        connection, headers = HTTPConnection(scope), Headers(scope=scope)
        host = headers.get("host", "")
        if host.partition(":")[0] not in LOCAL_HOSTS:
            return PlainTextResponse("The studio answers on 127.0.0.1 and localhost only.", 421)
        given = connection.query_params.get("token")
        if scope["path"] == "/" and scope["method"] == "GET" and self._is_token(given):
            response = RedirectResponse("/", 303)
            response.set_cookie(self.cookie, self.token, COOKIE_AGE_S, httponly=True, samesite="strict")
            return response
        if not self._is_token(connection.cookies.get(self.cookie)):
            return PlainTextResponse("Open the address that `suture studio` printed.", 403)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("Requests of other pages are not answered.", 403)
        if scope["method"] not in _SAFE_METHODS:
            if headers.get("origin") != f"http://{host}":
                return PlainTextResponse("Requests of other pages are not answered.", 403)
            if self.read_only:
                return PlainTextResponse("The studio was started with --read-only.", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return PlainTextResponse("The request is too large.", 413)
        return None

    def _is_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
