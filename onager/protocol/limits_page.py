"""Puts the limits that are enforced into the tables of ``docs/limits.md``: ``python -m onager.protocol.limits_page``.

A table stands between ``<!-- limits: NAME -->`` and ``<!-- end -->``. The text around it is written by hand.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onager.protocol import call_limits as calls
from onager.protocol import field_limits as fields
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import Bytes, Limit, Many, Number, Pairs, Part, Plain, Text, Unused

PAGE: Final = Path(__file__).parents[2] / "docs" / "limits.md"
_BLOCK: Final = re.compile(r"(<!-- limits: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return the page *text* with the tables as the limits are now."""
    return _BLOCK.sub(lambda found: "\n".join([found[1], *_TABLES[found[2]](), "", found[4]]), text)


def _jobs() -> Iterator[str]:
    yield "| what | limit |\n|---|---:|"
    yield f"| stages of a job | {fields.MAX_STAGES:,} |"
    yield f"| tasks of a stage, and buckets of an exchange | {fields.MAX_TASKS_OF_STAGE:,} |"
    yield f"| tasks of a job | {fields.MAX_TASKS_OF_JOB:,} |"
    pages = "(`onager job -o json` asks until it has all)"
    yield f"| tasks in one answer about a job {pages} | {fields.MAX_TASKS_A_PAGE:,} |"
    yield f"| rows, bytes and milliseconds of one task, each: more counts as this | {fields.MAX_AMOUNT:,} |"


def _calls() -> Iterator[str]:
    yield "| call | bytes | parts |\n|---|---:|---:|"
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            limit = calls.MESSAGE_LIMITS.get(method.name, calls.SMALL)
            yield f"| `{method.name}` | {limit.most_bytes:,} | {limit.most_parts:,} |"
    yield f"| each of health and reflection | {calls.FOREIGN_BYTES:,} | |"
    yield f"| each of KEDA | {calls.SCALER_BYTES:,} | |"


def _streams() -> Iterator[str]:
    limits = {
        **{f"`{name}`": limit for name, limit in calls.STREAM_LIMITS.items()},
        "`ExecutePlan` and `ReattachExecute` (Spark Connect)": calls.CONNECT_OPERATIONS,
        "`AddArtifacts` (Spark Connect)": calls.CONNECT_UPLOADS,
        "each of health, reflection and KEDA": calls.FOREIGN_STREAMS,
    }
    yield "| call | at a time | for one client | further ones get |\n|---|---:|---:|---|"
    for name, limit in limits.items():
        refusal = "`UNAVAILABLE`" if limit.can_wait else "`RESOURCE_EXHAUSTED`"
        yield f"| {name} | {limit.most:,} | {limit.share(calls.STREAM_SHARE_PERCENT):,} | {refusal} |"


def _http() -> Iterator[str]:
    yield "| what | limit | beyond it |\n|---|---:|---|"
    head = f"{calls.HTTP_HEAD_BYTES:,} bytes, {calls.HTTP_HEAD_S:.0f} s"
    yield f"| a request's head | {head} | the connection is closed |"
    yield f"| its body | {calls.HTTP_BODY_BYTES:,} bytes | 413 |"
    yield f"| | {calls.HTTP_BODY_PARTS:,} values, {calls.HTTP_BODY_S:.0f} s | 400 |"
    yield f"| connections | {calls.HTTP_CONNECTIONS:,} | further ones are closed |"
    yield f"| streams | {calls.HTTP_STREAMS.most:,} | 503 |"
    yield f"| streams to one address | {calls.HTTP_STREAMS_OF_ADDRESS.most:,} | 429 |"
    yield f"| exports to one address | {calls.HTTP_EXPORTS_OF_ADDRESS.most:,} | 429 |"
    yield f"| an answer that is not read | {calls.STREAM_STALLED_S:.0f} s | the connection is closed |"


def _stalled() -> Iterator[str]:
    yield "| a stream ends when | after |\n|---|---:|"
    yield f"| its client takes nothing, or sends nothing where it sends the stream | {calls.STREAM_STALLED_S:.0f} s |"


def _fields() -> Iterator[str]:
    yield "| message | field | limit |\n|---|---|---|"
    for message, limits in fields.FIELD_LIMITS.items():
        for name, limit in limits.items():
            yield f"| {message} | `{name}` | {_described(limit)} |"


_TABLES: Final = {
    "jobs": _jobs,
    "calls": _calls,
    "streams": _streams,
    "stalled": _stalled,
    "http": _http,
    "fields": _fields,
}


def _described(limit: Limit) -> str:
    match limit:
        case Text(most=most):
            kind = ", printable and no slash" if limit.is_id else ", printable" if limit.is_line else ""
            return f"{most:,} characters{kind}{'; cut' if limit.is_cut else ''}"
        case Bytes(most=most):
            return f"{most:,} bytes"
        case Number(most=most, is_cut=is_cut):
            return f"0 to {most:,}{'; cut' if is_cut else ''}"
        case Many(most=most, each=each, is_cut=is_cut):
            more = "" if isinstance(each, Part) else f" of {_described(each)} each"
            return f"{most:,} entries{more}{'; cut' if is_cut else ''}"
        case Pairs(most=most, key=key, value=value):
            values = "any number" if isinstance(value, Plain) else _described(value)
            return f"{most:,} entries; names of {_described(key)}, values of {values}"
        case Unused():
            return "belongs to answers: refused"
        case _:
            raise AssertionError(f"{limit} is in no table")  # pragma: no cover - all kinds are above


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
