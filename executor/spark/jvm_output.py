"""What the JVM and its Python workers write to standard error, line by line: of which attempt it is, and who sees it.

``log4j2.properties``, and `worker_daemon` in Spark's Python workers, write lines of three parts,

    RS attempt US level US text

where RS and US are ASCII's record and unit separators, the attempt is a `TaskKey` as text or empty, and the text is
escaped as in JSON, so that one event is one line. Anything else is passed on as it is.
"""

import json
import re
from typing import Final

from onager.executor.attempt_logs import AttemptLogs
from onager.ids import JobId, Partition, StageId, TaskKey, is_job_id

MARK: Final = "\x1e"
SEPARATOR: Final = "\x1f"
_LEVELS: Final = {"TRACE": 1, "DEBUG": 2, "INFO": 3, "WARN": 4, "ERROR": 5, "FATAL": 6, "": 7}
"""The levels of log4j that lines have; what Python workers write has none, and is always shown."""
_JAVAS_OWN: Final = "WARNING: Using incubator modules:"
"""What Java says whenever it starts with the options of Spark's launcher: nothing that anybody could change."""
_KEY: Final = re.compile(r"([^/]{1,68})/(\d{1,9})\.(\d{1,9})/(\d{1,9})\.(\d{1,9})")


class JvmOutput:
    """Sorts lines: those of attempts are kept in *logs*, and those from a level on go to standard error."""

    def __init__(self, logs: AttemptLogs | None = None, level: str = "ERROR") -> None:
        self._logs = logs
        self._least = {**_LEVELS, "ALL": 0, "OFF": _LEVELS[""]}.get(level.upper(), _LEVELS["ERROR"])

    def take(self, line: str) -> str:
        """Keep the line where it belongs, and return what standard error shall show; empty: nothing."""
        if line.startswith(_JAVAS_OWN):
            return ""
        before, *marked = line.split(MARK)  # the text between marks is escaped, and so has none
        return "".join([before, *map(self._take_marked, marked)])

    def _take_marked(self, event: str) -> str:
        attempt, _, rest = event.partition(SEPARATOR)
        level, separator, escaped = rest.partition(SEPARATOR)
        if not separator or level not in _LEVELS:
            return MARK + event
        key = attempt_of(attempt)
        lines = _unescaped(escaped.rstrip("\n")).rstrip("\n").split("\n")
        if key is not None and self._logs is not None:
            for each in lines:
                self._logs.add(key, each)
        if _LEVELS[level] < self._least:
            return ""
        if key is not None:
            lines[0] += (
                f"  job_id={key.job_id} stage_id={key.stage_id} partition={key.partition} attempt={key.task_attempt}"
            )
        return "\n".join(lines) + "\n"


def attempt_of(text: str) -> TaskKey | None:
    """Return the attempt that *text* names as ``str(TaskKey)`` does; None if it names none."""
    found = _KEY.fullmatch(text)
    if found is None or not is_job_id(found[1]):
        return None
    stage_id, stage_attempt, partition, task_attempt = map(int, found.groups()[1:])
    return TaskKey(JobId(found[1]), StageId(stage_id), stage_attempt, Partition(partition), task_attempt)


def _unescaped(text: str) -> str:
    try:
        found: str = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text  # two writers have met in one line
    return found
