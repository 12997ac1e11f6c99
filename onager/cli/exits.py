"""Exit codes, and how an error becomes one line for people and a code for scripts."""

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import NoReturn

from onager.errors import (
    AuthenticationError,
    InvalidRequestError,
    JobConflictError,
    JobEndedError,
    NotFoundError,
    OnagerError,
    SchedulerUnreachableError,
    StateAccessError,
    StateLockedError,
    StateNotWritableError,
    StateUnavailableError,
    VersionMismatchError,
)


class ExitCode(IntEnum):
    """What the command's exit code says."""

    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DETACHED = 130
    """Interrupted by the user, as shells count it; the job goes on."""


_USAGE = (
    AuthenticationError,
    InvalidRequestError,
    NotFoundError,
    JobConflictError,
    VersionMismatchError,
    StateAccessError,
    StateLockedError,
    StateNotWritableError,
)


def code_of(error: OnagerError) -> ExitCode:
    """Return the exit code that tells scripts what kind of error *error* is."""
    if isinstance(error, JobEndedError):
        return ExitCode.JOB_FAILED
    if isinstance(error, SchedulerUnreachableError | StateUnavailableError):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if isinstance(error, _USAGE) else ExitCode.JOB_FAILED


def fail(message: str, code: ExitCode) -> NoReturn:
    """Print *message* to standard error and end the process with *code*."""
    print(f"onager: {message}", file=sys.stderr)
    raise SystemExit(int(code))


@contextlib.contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """End the process with a message instead of a traceback, for errors that are told to users."""
    try:
        yield
    except OnagerError as error:
        fail(str(error), code_of(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "onager":
            raise
        fail(
            f"this command needs {error.name}, which is not installed: this installation has what clients need, "
            "and pip install 'onager[all]' the rest",
            ExitCode.USAGE,
        )
    except BrokenPipeError:
        # The reader of our output (head, less) is gone: nothing is left to do, or to say at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(int(ExitCode.DONE)) from None


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return *value* if it is one of *allowed*; otherwise end with a message about *name*."""
    if value not in allowed:
        fail(f"{name} {value!r}: expected one of {', '.join(allowed)}", ExitCode.USAGE)
    return value


def pairs(name: str, items: list[str], form: str = "KEY=VALUE") -> dict[str, str]:
    """Return ``k=v`` texts as a dict; one without ``=`` ends the process with a message about *name* and its *form*."""
    result: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            fail(f"{name} {item!r}: expected {form}", ExitCode.USAGE)
        result[key.strip()] = value
    return result
