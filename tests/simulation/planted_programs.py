"""Bugs in programs that outlive their processes; see `planted`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

from onager.errors import OnagerError
from onager.programs.tasks import Task
from onager.scheduler.connect import handler, program_calls
from onager.scheduler.connect.program_calls import ProgramCall
from onager.scheduler.connect.program_targets import once_of
from onager.scheduler.program_records import Fence, ProgramKey, calls_path
from onager.state_backend import Keyspace

_SOON_S = 0.02
_call = Task.call
_outcome = handler._outcome


def _answer_is_given_before_it_is_recorded() -> AbstractContextManager[Any]:
    """An answer is released, and recorded with others a moment later."""
    writing: list[asyncio.Task[None]] = []

    async def settled(recorded: ProgramCall, answer: bytes) -> None:
        await asyncio.sleep(_SOON_S)
        with suppress(OnagerError, program_calls.CallAnsweredError):
            await recorded.settle([answer])

    async def outcome(call: Any, serve: Callable[[], Awaitable[Any]]) -> bytes:
        recorded = call.of_program
        is_new = recorded is not None and recorded.name.is_recorded and not recorded.record.is_done
        if not is_new or call.name != "AnalyzePlan" or once_of(call.request):
            return await _outcome(call, serve)
        answer = handler._encoded(await serve())
        writing.append(asyncio.create_task(settled(recorded, answer)))
        return answer

    return mock.patch.object(handler, "_outcome", outcome)


def _number_is_drawn_twice() -> AbstractContextManager[Any]:
    """A thread of a program gives two calls one number."""

    def call(self: Task) -> str:
        if self.calls == 2 and not hasattr(self, "has_drawn_twice"):
            self.has_drawn_twice = True  # type: ignore[attr-defined]
            self.calls -= 1
        return _call(self)

    return mock.patch.object(Task, "call", call)


@contextmanager
def _call_is_taken_for_another() -> Iterator[None]:
    """A call is found by its number alone, whichever thread makes it, and is not held against the one recorded."""

    def place(key: ProgramKey, text: int, task: str, number: int) -> tuple[Keyspace, str]:
        return Keyspace.ProgramCalls, f"{calls_path(key, text)}/{task.partition('.')[0]}/{number:06d}"

    with (
        mock.patch.object(program_calls, "_place", place),
        mock.patch.object(program_calls, "_check_same"),
    ):
        yield


@contextmanager
def _old_attempt_still_counts() -> Iterator[None]:
    """What a call writes does not depend on its attempt: one that was under way when a later attempt began goes on."""
    with (
        mock.patch.object(Fence, "expected", {}),
        mock.patch.object(program_calls, "_check_counts"),
    ):
        yield


OF_PROGRAMS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "answer-before-its-record": _answer_is_given_before_it_is_recorded,
    "number-drawn-twice": _number_is_drawn_twice,
    "call-taken-for-another": _call_is_taken_for_another,
    "old-attempt-counts": _old_attempt_still_counts,
}
