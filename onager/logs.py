"""Logging of every process: constant snake_case events with fields, for people or as JSON lines.

Whatever is logged, by Onager or by libraries through `logging`, a line has bounded size, takes bounded time to make,
and holds no secrets: fields are cut, values of settings that sound like secrets are redacted, and of an error only its
class, text and places in the code are shown.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import structlog

from onager.redaction import REDACTED, is_secret, shown_text

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FIELD_CHARS: Final = 2000
_ENTRIES: Final = 32
_DEPTH: Final = 3
_FRAMES: Final = 20
_CAUSES: Final = 4
_MESSAGE_CHARS: Final = 400


def configure_logging(
    level: str = "info",
    style: Literal["console", "json"] = "console",
    on_line: Callable[[Mapping[str, Any]], None] | None = None,
) -> None:
    """Send this process's logs from *level* on to standard error, in *style*; call it once, at the start.

    *on_line* gets the fields of each line, too.
    """
    rendering: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    )
    stamping = structlog.processors.TimeStamper(fmt="iso", utc=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            stamping,
            bounded,
            *(() if on_line is None else (_telling(on_line),)),
            rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries (asyncio, grpc) log through the standard library: only warnings and above are of interest.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, stamping],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, bounded, rendering],
        )
    )
    handler.addFilter(_is_not_of_py4j)
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def _telling(on_line: Callable[[Mapping[str, Any]], None]) -> structlog.typing.Processor:
    def tell(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        on_line(event)
        return event

    return tell


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for records of py4j, from its own loggers and the root: it raises those errors, and we log them."""
    return "py4j" not in Path(record.pathname).parts


def bounded(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return *event* with fields of bounded size, without secrets, and with its error as text."""
    error = _error_of(event.pop("exc_info", None))
    fields = {name: REDACTED if is_secret(name) else _bounded(value, _DEPTH) for name, value in event.items()}
    if error is not None:
        fields["exception"] = exception_text(error)
    return fields


def exception_text(error: BaseException) -> str:
    """Return an error with its causes, innermost first: class, the start of its text, the last places in the code.

    It shows no values of variables, and takes little time however deep the calls were.
    """
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(texts) < _CAUSES:
        texts.append(_exception_line(seen))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\nwhich led to\n".join(reversed(texts))


def _exception_line(error: BaseException) -> str:
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    left_out = [f"  … {len(places) - _FRAMES} more"] if len(places) > _FRAMES else []
    last = [f"  {code.co_filename}:{line} in {code.co_name}" for code, line in places[-_FRAMES:]]
    try:
        text = _cut(str(error), _MESSAGE_CHARS)
    except Exception:  # noqa: BLE001 - any error may have a text of its own
        text = "(it has no text)"
    return "\n".join([*left_out, *last, f"{type(error).__name__}: {text}"])


def _error_of(exc_info: Any) -> BaseException | None:
    match exc_info:
        case BaseException():
            return exc_info
        case (_, BaseException() as error, _):
            return error
        case None | False:
            return None
        case _:
            return sys.exc_info()[1]


def _bounded(value: Any, depth: int) -> Any:  # noqa: PLR0911 - one for each kind
    match value:
        case bool() | float() | None:
            return value
        case int():
            return value if abs(value) < 2**64 else f"a number of {value.bit_length()} bits"
        case str():
            return _cut(value, FIELD_CHARS)
        case bytes():
            return f"{len(value)} bytes"
        case Mapping() if depth:
            some = list(value.items())[:_ENTRIES] if len(value) > _ENTRIES else value.items()
            found = {_key(k): REDACTED if is_secret(_key(k)) else _bounded(v, depth - 1) for k, v in some}
            return found | ({"…": f"{len(value) - _ENTRIES} more"} if len(value) > _ENTRIES else {})
        case list() | tuple() | set() | frozenset() if depth:
            entries = [_bounded(each, depth - 1) for each, _ in zip(value, range(_ENTRIES), strict=False)]
            return [*entries, f"… {len(value) - _ENTRIES} more"] if len(value) > _ENTRIES else entries
        case Mapping() | list() | tuple() | set() | frozenset():
            return f"{len(value)} entries"
        case _ if hasattr(value, "ByteSize"):
            return f"{type(value).__name__} of {value.ByteSize()} bytes"
        case _:
            return _cut(str(value), FIELD_CHARS)


def _key(key: object) -> str:
    return str(key)[:_MESSAGE_CHARS]


def _cut(text: str, most: int) -> str:
    if len(text) > most:
        return f"{shown_text(text[:most])}… (cut: {len(text):,} characters)"
    return shown_text(text)
