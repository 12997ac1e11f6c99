"""Typed ids, the identity of a task, and the only place where new ids are drawn."""

import re
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple, NewType

from onager.clock import Clock

JobId = NewType("JobId", str)
ExecutorId = NewType("ExecutorId", str)
SchedulerId = NewType("SchedulerId", str)
Incarnation = NewType("Incarnation", str)
"""One life of a process: drawn at its start, to distinguish restarts under the same id."""
Nonce = NewType("Nonce", str)
"""One execution of a task attempt: names the files that this execution alone writes."""
BlobDigest = NewType("BlobDigest", str)
"""SHA-256 in lower-case hex of a blob's plain bytes (stage plans, job specs, manifests)."""
StageId = NewType("StageId", int)
Partition = NewType("Partition", int)

_JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}(\.[1-9][0-9]{0,3})?")
_LIFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_EXECUTOR_ID_LENGTH = 128


class TaskKey(NamedTuple):
    """The identity of one task attempt; ordered and hashable."""

    job_id: JobId
    stage_id: StageId
    stage_attempt: int
    partition: Partition
    task_attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.stage_id}.{self.stage_attempt}/{self.partition}.{self.task_attempt}"


def new_job_id(clock: Clock) -> JobId:
    """Draw a job id that sorts by time of creation and collides with no other (48 random bits)."""
    return JobId(f"{clock.now_ms():011x}-{secrets.token_hex(6)}")


def is_job_id(text: str) -> bool:
    """Return whether *text* can name a job: 1 to 63 of ``a-z 0-9 -``, not starting with ``-``.

    The id of the job of a script's step is the script's id, a dot, and the step's number.
    """
    return _JOB_ID.fullmatch(text) is not None


def may_be_drawn(text: str) -> bool:
    """Return whether a client may give a new job the id *text*: any but those of steps, which are not drawn."""
    return is_job_id(text) and "." not in text


def step_job_id(script_id: str, stage_id: int) -> JobId:
    """Return the id of the job that does the work of a script's step: the same whoever asks."""
    return JobId(f"{script_id}.{stage_id}")


_PROGRAMS = ".programs"


def program_host_id(executor_id: str) -> ExecutorId:
    """Return the id of the executor that runs programs beside the one that runs tasks."""
    return ExecutorId(f"{executor_id}{_PROGRAMS}")


PROGRAM_LABEL: Final = "connect.program"
"""The label of a job that is a call of a program: ``OWNER/ID``, as the program's record has it."""


def program_of(labels: Mapping[str, str]) -> JobId | None:
    """Return the program of which the job with these labels is a call; None if it is none."""
    _, slash, program_id = labels.get(PROGRAM_LABEL, "").rpartition("/")
    return JobId(program_id) if slash else None


def script_of(job_id: str) -> JobId | None:
    """Return the script of which the job *job_id* is a step; None if it is none."""
    script_id, dot, _ = job_id.partition(".")
    return JobId(script_id) if dot else None


def is_life(text: str) -> bool:
    """Return whether *text* can be a nonce or an incarnation: 1 to 64 of ``a-z A-Z 0-9 _ -``, a letter or digit first.

    They become parts of paths.
    """
    return _LIFE.fullmatch(text) is not None


def is_executor_id(text: str) -> bool:
    """Return whether *text* can name an executor: 1 to 128 printable characters without a slash, and not only dots."""
    is_name = 0 < len(text) <= MAX_EXECUTOR_ID_LENGTH and text.isprintable() and bool(text.strip(". "))
    return is_name and "/" not in text


def is_digest(text: str) -> bool:
    """Return whether *text* can name a blob."""
    return _DIGEST.fullmatch(text) is not None


def new_incarnation() -> Incarnation:
    """Draw the incarnation of this process (64 random bits)."""
    return Incarnation(secrets.token_hex(8))


def new_nonce() -> Nonce:
    """Draw the nonce of one execution (64 random bits)."""
    return Nonce(secrets.token_hex(8))
