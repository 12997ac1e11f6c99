"""Starts a scheduler or an executor in this process."""

import ctypes
import difflib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from onager.cli.exits import ExitCode, fail
from onager.cli.java import ADVICE, find_java_home
from onager.private_files import write_nothing_for_others
from onager.renamed_settings import old_names

SUPERVISOR_VARIABLE: Final = "ONAGER_SUPERVISOR_PID"
"""Set by a supervisor for its children, which stop when it has ended."""

_PR_SET_PDEATHSIG: Final = 1

_WANTED: Final = {"exchange_dir": "give the directory that all executors and schedulers share"}
"""Advice for settings that have no default."""

S = TypeVar("S", bound=BaseSettings)


def run_scheduler(given: Mapping[str, Any]) -> int:
    """Run a scheduler until it stops, and return its exit code; None in *given* means not given."""
    from onager.scheduler.settings import SchedulerSettings

    settings = _settings(SchedulerSettings, given)
    _stop_with_supervisor()
    from onager.scheduler.main import run

    write_nothing_for_others()  # state, exchange files, crash reports
    return run(settings) or 0


def run_executor(given: Mapping[str, Any]) -> int:
    """Run an executor until it stops, and return its exit code; None in *given* means not given."""
    from onager.executor.settings import ExecutorSettings

    settings = _settings(ExecutorSettings, given)
    _stop_with_supervisor()
    _choose_java()
    from onager.executor.main import run

    return run(settings) or 0


def _settings(model: type[S], given: Mapping[str, Any]) -> S:
    """Return the settings from flags, then from variables; end the process with a message if one is invalid."""
    if refused := list(old_names(os.environ)):
        fail("\n".join(refused), ExitCode.USAGE)
    _warn_of_unknown_variables(model)
    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        prefix = model.model_config.get("env_prefix", "")
        lines = []
        for problem in error.errors():
            field = ".".join(str(part) for part in problem["loc"])
            flag = f"--{field.replace('_', '-')}"
            what = f" {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}"
            if problem["type"] == "missing":
                what = f" is not given: {_WANTED[field]}"
            lines.append(f"{flag} ({prefix}{field.upper()}){what}")
        fail("\n".join(lines), ExitCode.USAGE)


def _warn_of_unknown_variables(model: type[BaseSettings]) -> None:
    """Warn of variables that look like settings but are none, such as misspelt ones."""
    prefix = str(model.model_config.get("env_prefix", ""))
    known = [field.upper() for field in model.model_fields]
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(prefix)
        if not variable.upper().startswith(prefix) or name in known:
            continue
        similar = difflib.get_close_matches(name, known, 1, cutoff=0.75)
        advice = f"; did you mean {prefix}{similar[0]}?" if similar else ""
        print(f"onager: {variable} is not a setting, and has no effect{advice}", file=sys.stderr)


def _choose_java() -> None:
    """Set JAVA_HOME to a Java that is new enough for Spark."""
    home = find_java_home()
    if home is None:
        fail(ADVICE, ExitCode.USAGE)
    os.environ["JAVA_HOME"] = str(home)


def _stop_with_supervisor() -> None:
    """Make Linux terminate this process when its supervisor ends (`prctl(2)`)."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(supervisor):  # it ended before the call
        raise SystemExit(int(ExitCode.DONE))
