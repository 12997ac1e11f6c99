"""Errors of programs that outlive their processes."""

from onager.errors import OnagerError

EXIT_CLASS = "ONAGER_PROGRAM_EXIT"
"""The error class of the job of a program that ended with another exit code than 0."""


class AttemptSupersededError(OnagerError):
    """Another attempt of the program counts, or the program has ended: this attempt has to end."""

    def __init__(self, program_id: str, attempt: int, counts: int, *, has_ended: bool = False) -> None:
        why = "has ended" if has_ended else f"is at attempt {counts}"
        super().__init__(f"program {program_id} {why}: attempt {attempt} does not count any more")
        self.program_id = program_id
        self.attempt = attempt
        self.counts = counts
        self.has_ended = has_ended


class ProgramGoesOnError(OnagerError):
    """A program that has not ended cannot be retried: a job goes on with it."""

    retryable = True

    def __init__(self, program_id: str, job_id: str) -> None:
        super().__init__(
            f"program {program_id} goes on as job {job_id}: it can be retried once that has ended; "
            f"onager logs {job_id} shows its output"
        )
        self.program_id = program_id
        self.job_id = job_id


class NotDeterministicError(OnagerError):
    """A program that was begun again makes another call than the one that was recorded."""

    def __init__(self, call: str, before: str, now: str) -> None:
        super().__init__(
            f"the program is not deterministic: {call} was {before}, and is {now} now; decide by arguments and by what "
            "Spark answers, and start threads in one order"
        )
        self.call = call
        self.before = before
        self.now = now


class ProgramDiffersError(OnagerError):
    """A mended program does not fit writes that are done: the program is put back to what it was."""

    def __init__(self, why: str, recorded: str, mended: str, *, is_kept: bool = False) -> None:
        advice = (
            "Put writes that are new behind the call that failed"
            if is_kept
            else "Have it make the writes that are done as they are recorded, or let the record stand (--keep)"
        )
        super().__init__(
            f"the retry is refused: {why}\n  recorded: {recorded}\n  mended:   {mended}\nNothing was written. {advice}"
        )
        self.why = why
        self.recorded = recorded
        self.mended = mended
        self.is_kept = is_kept


class ProgramLimitError(OnagerError):
    """A program has recorded as much as one may: it cannot go on, whoever begins it again."""

    def __init__(self, program_id: str, limit: str, call: str) -> None:
        super().__init__(f"program {program_id} has reached its limit of {limit}: {call} cannot be recorded")
        self.program_id = program_id
        self.limit = limit
        self.call = call
