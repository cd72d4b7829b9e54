"""Errors of requests, as status codes and in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping

from app.sanitise import one_line
from datastores.errors import ContextOverflowError, InputError, SpecchatError

MAX_MESSAGE_CHARACTERS = 500

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""OpenAI's types of errors by status; those of other 4xx are invalid requests."""


class RequestError(InputError):
    """A request that is not answered.

    Attributes:
        status: its HTTP status.
        param: the field at fault, if it is one.
        code: OpenAI's code, which programs compare; empty for none.
        headers: those of the response.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str | None = None,
        code: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, object]:
        """The error in OpenAI's form."""
        kind = TYPES.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        message = one_line(str(self), MAX_MESSAGE_CHARACTERS)
        fields = {"message": message, "type": kind, "param": self.param, "code": self.code or None}
        return {"error": fields}


def as_request_error(error: SpecchatError) -> RequestError:
    """`error`, raised while answering, as one of a request."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ContextOverflowError):
        return RequestError(str(error), code="context_length_exceeded")
    if isinstance(error, InputError):
        return RequestError(str(error))
    return RequestError(str(error), 500)
