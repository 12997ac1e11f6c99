"""How service methods fail.

Our errors become statuses with the typed error beside them; defects are logged and told as such.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

import grpc
import structlog

from onager.errors import OnagerError
from onager.protocol.status import abort

log = structlog.get_logger(__name__)

Unary = Callable[[Any, Any, Any], Awaitable[Any]]
Stream = Callable[[Any, Any, Any], AsyncIterator[Any]]


def translated(method: Unary) -> Unary:
    """Return *method* of a service with its errors told in gRPC's way."""

    @wraps(method)
    async def served(self: Any, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except OnagerError as error:
            log.debug("call_refused", call=method.__name__, error=str(error))
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            log.exception("call_failed", call=method.__name__)
            await abort(context, _defect(method, error))

    return served


def translated_stream(method: Stream) -> Stream:
    """Return *method*, whose answer is a stream, with its errors told in gRPC's way."""

    @wraps(method)
    async def served(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in method(self, request, context):
                yield message
        except OnagerError as error:
            log.debug("call_refused", call=method.__name__, error=str(error))
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            log.exception("call_failed", call=method.__name__)
            await abort(context, _defect(method, error))

    return served


def _defect(method: Any, error: Exception) -> OnagerError:
    return OnagerError(
        f"the process that serves {method.__name__} failed: {type(error).__name__}: {error}; its log has the details"
    )
