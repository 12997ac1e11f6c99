"""Exit codes, and the translation of errors into a message for people and an exit code for scripts."""

import contextlib
import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import NoReturn

from onager.access_errors import AuthenticationError
from onager.errors import (
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
    """The exit codes of commands."""

    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DETACHED = 130
    """Interrupted by the user (128 + SIGINT); the job continues."""


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
    """Return the exit code for *error*."""
    if isinstance(error, JobEndedError):
        return ExitCode.JOB_FAILED
    if isinstance(error, SchedulerUnreachableError | StateUnavailableError):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if isinstance(error, _USAGE) else ExitCode.JOB_FAILED


def fail(message: str, code: ExitCode) -> NoReturn:
    """Print *message* to standard error, and end the process with *code*."""
    print(f"onager: {message}", file=sys.stderr)
    raise SystemExit(int(code))


@contextlib.contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """End the process with a message instead of a traceback for errors of Onager."""
    try:
        yield
    except OnagerError as error:
        fail(str(error), code_of(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "onager":
            raise
        fail(
            f"this command needs {error.name}, which is not installed: this installation has only the client; "
            "pip install 'onager[all]' installs everything",
            ExitCode.USAGE,
        )
    except BrokenPipeError:
        # The reader of the output (head, less) has exited: end quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(int(ExitCode.DONE)) from None


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return *value* if it is one of *allowed*; otherwise end the process with a message about *name*."""
    if value not in allowed:
        fail(f"{name} {value!r}: expected one of {', '.join(allowed)}", ExitCode.USAGE)
    return value


def pairs(name: str, items: list[str], form: str = "KEY=VALUE", *, last_counts: bool = False) -> dict[str, str]:
    """Return ``k=v`` texts as a dict; one without ``=`` ends the process with a message about *name* and its *form*.

    So does a key with two values, unless the *last_counts*.
    """
    result: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not key:
            fail(f"{name} {item!r}: expected {form}", ExitCode.USAGE)
        if not last_counts and result.get(key, value) != value:
            fail(f"{name}: {key} is given twice, with different values; leave one of them out", ExitCode.USAGE)
        result[key] = value
    return result
