"""How the calls of programs name themselves: by metadata."""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from onager.errors import InvalidRequestError
from onager.ids import may_be_drawn
from onager.program_errors import ProgramLimitError
from onager.protocol.security import PROGRAM_HEADER
from onager.scheduler.program_limits import MAX_CALLS
from onager.scheduler.program_records import is_secret

CALL_HEADER: Final = "onager-call"
"""Metadata of a call that is recorded: ``TASK/NUMBER``."""
LINE_HEADER: Final = "onager-line-bin"
"""Metadata of a call: the file and the line of the program that makes it."""
PLAN_HEADER: Final = "onager-plan"
"""Metadata of a call: a digest of what it asks for."""
_PLAN: Final = re.compile(r"[0-9a-f]{0,64}")
TASK: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,20}")
_LINE_CHARS: Final = 256


class CallName(NamedTuple):
    """How a call names itself: its program and attempt, and its place in the program."""

    program_id: str
    attempt: int
    secret: str
    task: str = ""
    """Which of the program's threads makes it, as a path; empty with *number* 0: a call that is not recorded."""
    number: int = 0
    line: str = ""
    plan: str = ""

    @property
    def is_recorded(self) -> bool:
        """Return whether the outcome is recorded."""
        return self.number > 0

    @property
    def shown(self) -> str:
        """Return the call, and where in the program it stands."""
        return f"{self} at {self.line}" if self.line else str(self)

    def __str__(self) -> str:
        return f"call {self.number} of task {self.task}"


def call_name(metadata: Iterable[tuple[str, Any]]) -> CallName | None:
    """Return how a call names itself by its metadata; None for one that is not of a program."""
    found = {key: value for key, value in metadata if key in (PROGRAM_HEADER, CALL_HEADER, LINE_HEADER, PLAN_HEADER)}
    if PROGRAM_HEADER not in found:
        return None
    program_id, _, rest = str(found[PROGRAM_HEADER]).partition("/")
    attempt, _, secret = rest.partition("/")
    if not (may_be_drawn(program_id) and re.fullmatch(r"[1-9][0-9]{0,5}", attempt) and is_secret(secret)):
        raise InvalidRequestError(f"the metadata {PROGRAM_HEADER} is no ID/ATTEMPT/SECRET of a program")
    named = CallName(program_id, int(attempt), secret)
    if CALL_HEADER not in found:
        return named
    task, _, number = str(found[CALL_HEADER]).partition("/")
    if not (TASK.fullmatch(task) and re.fullmatch(r"[1-9][0-9]{0,5}", number)):
        raise InvalidRequestError(f"the metadata {CALL_HEADER} is no TASK/NUMBER of a call")
    line = bytes(found.get(LINE_HEADER, b"")).decode(errors="replace")[:_LINE_CHARS]
    plan = str(found.get(PLAN_HEADER, ""))
    if not _PLAN.fullmatch(plan):
        raise InvalidRequestError(f"the metadata {PLAN_HEADER} is no digest")
    named = named._replace(task=task, number=int(number), line=line, plan=plan)
    if named.number > MAX_CALLS:
        raise ProgramLimitError(program_id, f"{MAX_CALLS:,} calls", named.shown)
    return named
