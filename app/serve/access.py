"""Who may use the endpoint: programs of this person that know the token, and no web page.

A page in a browser can send requests to a loopback address, or to a name that it makes point there
(DNS rebinding). So a request with an `Origin`, which browsers add, is refused, and one whose `Host`
is a name other than localhost. No response allows another origin to read it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.serve.errors import RequestError
from app.serve.responses import as_json
from app.serve.schema import MAX_BODY_BYTES
from datastores.errors import StoreError
from datastores.storage.files import write_atomic

BODY_TIMEOUT_S = 30.0
"""Longest time that a client may take to send a body."""
OPEN_PATHS = ("/health",)
"""Paths that need no token; they tell nothing but that the server runs."""
LOCAL_NAMES = ("localhost",)


def read_token(path: Path) -> str:
    """The token in the file at `path`, which only its owner can read; made if there is none.

    Raises:
        StoreError: it cannot be read or written.
    """
    try:
        token = path.read_text(encoding="ascii").strip() if path.exists() else ""
        if not token:
            token = token_urlsafe(32)
            write_atomic(path, [f"{token}\n"], mode=0o600)
        os.chmod(path, 0o600)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"cannot use {path}: {error}; delete it to have another made") from error
    return token


class AccessControl:
    """Passes a request on if it may be answered."""

    def __init__(self, app: ASGIApp, token: str, names: Collection[str] = ()) -> None:
        """`names` are further names of this machine that a `Host` may have."""
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._names = {*LOCAL_NAMES, *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Refuse what no program of this person sends.

        Raises:
            RequestError: the request is from a web page or to another name, or has no token.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"origin" in headers:
            raise RequestError("web pages are not answered: leave out Origin", 403)
        if not self._is_own(headers.get(b"host", b"")):
            raise RequestError("this Host is not answered: use the address itself", 403)
        if scope["path"] in OPEN_PATHS:
            return
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
            raise RequestError(
                "a token is needed: send `Authorization: Bearer` with that of `specchat serve`",
                401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _is_own(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        return name in self._names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def read_body(request: Request) -> bytes:
    """The body of `request`.

    Raises:
        RequestError: it is too large, or comes too slowly.
        ClientDisconnect: the client went away.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    most = MAX_BODY_BYTES // 2**20
                    raise RequestError(f"the body has more than {most} MiB", 413)
    except TimeoutError as error:
        raise RequestError("the body did not arrive in time", 408) from error
    return bytes(body)


async def until_gone(request: Request) -> None:
    """Wait until the client of `request`, whose body was read, goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_response(error: RequestError) -> Response:
    """The response for a request that is not answered."""
    return Response(as_json(error.body), error.status, error.headers, "application/json")
