"""How a call of a mended program is matched with the calls that are recorded of the program before: pure.

Calls of a task are matched in their order. One that is the next in the record is that one. A read or a setting that is
not has been added, or differs: it runs, and the record waits for its next call. So after the first read that differs,
all run again. A write that is done has to be the next in the record: whatever is left before it differs, or is missing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from onager.scheduler.connect.program_targets import Effect


class Asked(NamedTuple):
    """What a call asks for: two calls are the same if this is."""

    kind: str
    target: str
    session_id: str
    plan: str


class Recorded(NamedTuple):
    """A call that is recorded."""

    number: int
    asked: Asked
    effect: Effect


class Why(StrEnum):
    """Why a retry is refused."""

    DIFFERS = "a write that is done differs, or is missing"
    BEHIND = "a write that is done comes behind a read that differs"
    BEHIND_OTHER = "a write that is done comes while another task has made a call that is not in the record"
    ELSEWHERE = "this write is done, and what was recorded of it stands for another one, or for none"
    UNKNOWN = "a write comes before writes that are done, and none of these is one like it"


class Match(NamedTuple):
    """What becomes of a call."""

    recorded: Recorded | None = None
    """The recorded call that it is; None: it is none of them."""
    stands: bool = False
    """Whether what was recorded is its outcome; else it runs."""
    refused: Why | None = None
    """Why the retry is refused; *recorded* is the write that is done."""


def match(left: Sequence[Recorded], asked: Asked, effect: Effect, *, keeps: bool, is_beside: bool) -> Match:
    """Return what becomes of the next call of a task.

    *left*: the calls of the task that are recorded, behind those that were matched. *is_beside*: another task has made
    a call that is not in the record. *keeps*: writes that are done stand, also where the program has others.
    """
    first = left[0] if left else None
    if first is not None and first.asked == asked:
        if effect is not Effect.WRITE:
            return Match(first, stands=effect is Effect.READ and not is_beside)
        return Match(first, refused=Why.BEHIND_OTHER) if is_beside and not keeps else Match(first, stands=True)
    if effect is not Effect.WRITE:
        return Match()
    writes = [call for call in left if call.effect is Effect.WRITE]
    if not writes:
        return Match()
    same = next((call for call in writes if call.asked == asked), None)
    if not keeps:
        return Match(writes[0], refused=Why.BEHIND if same is writes[0] else Why.DIFFERS)
    alike = (call for call in writes if (call.asked.kind, call.asked.target) == (asked.kind, asked.target))
    stands = same or next(alike, None)
    return Match(writes[0], refused=Why.UNKNOWN) if stands is None else Match(stands, stands=True)
