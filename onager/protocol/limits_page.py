"""Writes ``docs/limits.md`` from the tables that are enforced: ``python -m onager.protocol.limits_page``."""

from pathlib import Path
from typing import Final

from onager.protocol import call_limits as calls
from onager.protocol import field_limits as fields
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import Bytes, Limit, Many, Number, Pairs, Part, Plain, Text, Unused

PAGE: Final = Path(__file__).parents[2] / "docs" / "limits.md"

_HEAD: Final = f"""# Limits

Made by `python -m onager.protocol.limits_page` from the tables that schedulers and executors enforce
([of fields](../onager/protocol/field_limits.py), [of calls](../onager/protocol/call_limits.py)); do not edit it.

A scheduler looks at the size of a request before it decodes it, and at the size of every field before anything else
does. What is too large is refused with `INVALID_ARGUMENT` or `RESOURCE_EXHAUSTED`; the message names the field, its
size and the limit. What may be *cut* is cut, and the call goes on: of texts about failures the beginning is kept, of
lists the first entries (whoever reports sends again what was not answered). A report of a task that does not keep to a
limit counts as one that the task failed. With these limits no request delays another call by more than half a second,
or makes a scheduler grow by more than 64 MiB; `python -m pytest tests/abuse` shows it. Why it is so is in
[decision 21](decisions/0021-limits-at-the-border.md).

## Jobs

| what | limit |
|---|---:|
| stages of a job | {fields.MAX_STAGES:,} |
| tasks of a stage, and buckets of an exchange | {fields.MAX_TASKS_OF_STAGE:,} |
| tasks of a job | {fields.MAX_TASKS_OF_JOB:,} |
| tasks in one answer about a job (`onager job -o json` asks until it has all) | {fields.MAX_TASKS_A_PAGE:,} |

A query that would take more fails when it is planned: read in fewer and larger partitions.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_calls(), "", *_streams(), "", *_fields()]) + "\n"


def _calls() -> list[str]:
    names = [method.name for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods]
    limits = {name: calls.MESSAGE_LIMITS.get(name, calls.SMALL) for name in names}
    rows = [f"| `{name}` | {limit.most_bytes:,} | {limit.most_parts:,} |" for name, limit in limits.items()]
    return [
        "## Requests",
        "",
        "Parts are messages within the request, entries of maps, and texts of lists.",
        "",
        "| call | bytes | parts |",
        "|---|---:|---:|",
        *rows,
    ]


def _streams() -> list[str]:
    limits = {
        **{f"`{name}`": limit for name, limit in calls.STREAM_LIMITS.items()},
        "`ExecutePlan` and `ReattachExecute` (Spark Connect)": calls.CONNECT_OPERATIONS,
        "`AddArtifacts` (Spark Connect)": calls.CONNECT_UPLOADS,
        "each of health, reflection and KEDA": calls.FOREIGN_STREAMS,
    }
    rows = [
        f"| {name} | {limit.most:,} | {limit.share(calls.STREAM_SHARE_PERCENT):,} "
        f"| {'`UNAVAILABLE`' if limit.can_wait else '`RESOURCE_EXHAUSTED`'} |"
        for name, limit in limits.items()
    ]
    return [
        "## Streams",
        "",
        "One process serves so many streams of each kind at a time, and so many of them for one client. A client is a",
        "token, by its name; without names it is an address. On `UNAVAILABLE` clients turn to another scheduler, and",
        "come back. `ONAGER_SCHEDULER_STREAM_SHARE_PERCENT` sets the share of one client: give 100 where all clients",
        "come through one proxy without tokens.",
        "",
        f"A stream ends when its client takes nothing for {calls.STREAM_STALLED_S:.0f} s, or sends nothing for as long",
        "where it sends the stream. `python -m benchmarks.floods` measures how long another client's requests take",
        "beside one that opens all the streams that it can.",
        "",
        "| call | at a time | for one client | further ones get |",
        "|---|---:|---:|---|",
        *rows,
        "",
        f"A request of health or reflection has at most {calls.FOREIGN_BYTES:,} bytes, and one of KEDA at most",
        f"{calls.SCALER_BYTES:,}.",
        "",
        "## HTTP",
        "",
        "Requests to the [page and REST](rest.md) have the limits of the calls that they stand for, and besides:",
        "",
        "| what | limit | beyond it |",
        "|---|---:|---|",
        f"| a request's head | {calls.HTTP_HEAD_BYTES:,} bytes, {calls.HTTP_HEAD_S:.0f} s | the connection is closed |",
        f"| its body | {calls.HTTP_BODY_BYTES:,} bytes | 413 |",
        f"| | {calls.HTTP_BODY_PARTS:,} values, {calls.HTTP_BODY_S:.0f} s | 400 |",
        f"| connections | {calls.HTTP_CONNECTIONS:,} | further ones are closed |",
        f"| streams | {calls.HTTP_STREAMS.most:,} | 503 |",
        f"| streams to one address | {calls.HTTP_STREAMS_OF_PEER.most:,} | 429 |",
        f"| exports to one address | {calls.HTTP_EXPORTS_OF_PEER.most:,} | 429 |",
        f"| an answer that is not read | {calls.STREAM_STALLED_S:.0f} s | the connection is closed |",
    ]


def _fields() -> list[str]:
    lines = [
        "## Fields",
        "",
        "Fields without a row are numbers, flags and choices of which any value will do. What a task says that it",
        f"read, wrote and took counts as at most {fields.MAX_AMOUNT:,} rows, bytes or milliseconds each.",
    ]
    for message, limits in fields.FIELD_LIMITS.items():
        rows = [
            f"| `{name}` | {_told(limit)} |" for name, limit in limits.items() if not isinstance(limit, Plain | Part)
        ]
        if rows:
            lines += ["", f"### {message}", "", "| field | limit |", "|---|---|", *rows]
    return lines


def _told(limit: Limit) -> str:
    match limit:
        case Text(most=most, is_cut=is_cut, is_line=is_line, is_id=is_id):
            kind = " printable and no slash" if is_id else " printable" if is_line else ""
            return f"{most:,} characters{',' if kind else ''}{kind}{_cut(is_cut=is_cut)}"
        case Bytes(most=most):
            return f"{most:,} bytes"
        case Number(most=most, is_cut=is_cut):
            return f"0 to {most:,}{_cut(is_cut=is_cut)}"
        case Many(most=most, each=each, is_cut=is_cut):
            more = "" if isinstance(each, Part) else f" of {_told(each)} each"
            return f"{most:,} entries{more}{_cut(is_cut=is_cut)}"
        case Pairs(most=most, key=key, value=value):
            values = "any number" if isinstance(value, Plain) else _told(value)
            return f"{most:,} entries; names of {_told(key)}, values of {values}"
        case Unused():
            return "belongs to answers: refused"
        case _:
            raise AssertionError(f"{limit} is not told")  # pragma: no cover - all kinds are above


def _cut(*, is_cut: bool) -> str:
    return "; cut" if is_cut else ""


if __name__ == "__main__":
    PAGE.write_text(page())
