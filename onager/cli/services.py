"""Start a scheduler or an executor in this process."""

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

SUPERVISOR_VARIABLE: Final = "ONAGER_SUPERVISOR_PID"
"""Set by a supervisor for its children: they stop when that process is gone."""

_PR_SET_PDEATHSIG: Final = 1

_WANTED: Final = {"exchange_dir": "name the directory, or URI, that all executors and schedulers share"}
"""What to give for settings that have no default."""

S = TypeVar("S", bound=BaseSettings)


def run_scheduler(given: Mapping[str, Any]) -> int:
    """Run a scheduler until it is stopped, and return its exit code; None among *given* means not given."""
    from onager.scheduler.settings import SchedulerSettings

    settings = _settings(SchedulerSettings, given)
    _stop_with_supervisor()
    from onager.scheduler.main import run

    write_nothing_for_others()  # state, exchange, reports of crashes
    return run(settings) or 0


def run_executor(given: Mapping[str, Any]) -> int:
    """Run an executor until it is stopped, and return its exit code; None among *given* means not given."""
    from onager.executor.settings import ExecutorSettings

    settings = _settings(ExecutorSettings, given)
    _stop_with_supervisor()
    _choose_java()
    from onager.executor.main import run

    return run(settings) or 0


def _settings(model: type[S], given: Mapping[str, Any]) -> S:
    """Return the settings from flags, then from variables; end with a message when one cannot be used."""
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
    """Say which variables look like settings and are none: one that is misspelt would do nothing."""
    prefix = str(model.model_config.get("env_prefix", ""))
    known = [field.upper() for field in model.model_fields]
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(prefix)
        if not variable.upper().startswith(prefix) or name in known:
            continue
        similar = difflib.get_close_matches(name, known, 1, cutoff=0.75)
        advice = f"; is {prefix}{similar[0]} meant?" if similar else ""
        print(f"onager: {variable} is no setting, and does nothing{advice}", file=sys.stderr)


def _choose_java() -> None:
    """Point Spark at a Java that is new enough, wherever it was installed."""
    home = find_java_home()
    if home is None:
        fail(ADVICE, ExitCode.USAGE)
    os.environ["JAVA_HOME"] = str(home)


def _stop_with_supervisor() -> None:
    """Ask the kernel to terminate this process when its supervisor is gone (`prctl(2)`; on Linux only)."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(supervisor):  # it was gone before we asked
        raise SystemExit(int(ExitCode.DONE))
