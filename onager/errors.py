"""Every error that Onager raises, in one tree.

    OnagerError
    ├── InvalidRequestError          the caller asked for something that can never work
    │   ├── InvalidSettingError      a flag, variable or conf key
    │   └── RequestTooLargeError
    ├── NotFoundError
    │   ├── JobNotFoundError
    │   └── ResultExpiredError       the job's result is past its retention
    ├── JobConflictError             the job id is taken by a different job
    ├── JobNotEndedError             the job goes on: what was asked is for ended ones
    ├── ResultNotReadyError
    ├── JobEndedError                the end of a job that did not succeed
    │   ├── JobFailedError
    │   └── JobCancelledError
    ├── BusyError                    retryable: too much of this kind is in progress
    │   └── OneAtATimeError          and it takes too long to wait for
    ├── SchedulerUnreachableError    retryable
    │   └── TlsError                 it is there, but no safe connection to it was made
    ├── ExecutorUnreachableError     retryable: one in push mode
    ├── ConnectUnservedError         retryable: no executor answers a request of Spark Connect
    ├── ConnectGivenUpError          a Spark Connect request took too long, or ended executors
    ├── AuthenticationError          a scheduler does not know us, or refuses us: `onager.access_errors`
    │   ├── HostRefusedError         HTTP: the request was sent to a name that is not ours
    │   ├── LoginsLimitedError       retryable; HTTP: too many wrong tokens at the login
    │   ├── OriginRefusedError       HTTP: the request comes from a page of somebody else
    │   ├── RoleRefusedError         the token is for other calls
    │   ├── SessionEndedError        HTTP: the cookie has expired, or its token is not valid any more
    │   ├── TokenMissingError
    │   └── TokenRefusedError
    ├── VersionMismatchError         another protocol or Spark version
    ├── UnknownExecutorError         retryable: register again
    ├── ExecutorReplacedError        another process runs under the same executor id
    ├── StateBackendError
    │   ├── StateUnavailableError    retryable
    │   │   └── StateFullError       the store is full until space is made
    │   ├── StateAccessError         the store refuses us, or this request
    │   ├── StateLockedError         another process has the directory open
    │   ├── StateNotWritableError
    │   ├── StateCorruptError
    │   ├── SchemaVersionError       another release of Onager wrote it
    │   │   └── FeatureMissingError  and a newer one is needed here
    │   ├── LimitExceededError       more than a transaction or a value may carry
    │   ├── OutcomeUnknownError      the write may or may not have happened
    │   ├── WatchCompactedError      events between were compacted away: list again
    │   ├── LeaseExpiredError
    │   └── LockTimeoutError         retryable: another holds the lock
    ├── PlanningError                the query cannot be planned
    │   ├── UnsupportedPlanError     names the construct
    │   ├── SideEffectError          names the statement
    │   ├── UserCodeError            the job's function raised, or ended its process
    │   └── PlanningTimeoutError     planning took too long
    ├── CatalogConflictError         retryable: another job changed the catalog meanwhile
    ├── CatalogUnavailableError      retryable: a catalog of somebody else's does not answer
    ├── FunctionLostError            retryable: the process of the job's function was killed
    ├── ExchangeError
    │   ├── ExchangeNotWritableError
    │   ├── ExchangeFullError        retryable
    │   ├── FetchFailedError         an input that a producer wrote is missing or damaged
    │   └── PlaceNotSeenError        retryable: a process does not see a directory that the cluster shares
    ├── SinkError
    │   └── TargetExistsError
    └── DiskError                    retryable: a disk that a scheduler uses fails, or does not answer

`retryable` says whether the same call can succeed later without anyone changing anything. What happened inside a task
is data (`execution_graph.Failure`), not an exception, once it leaves the executor.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from onager.redaction import is_secret, shown_text, shown_value
from onager.version import __version__

_VALUE_CHARS: Final = 200


class OnagerError(Exception):
    """Base of every error of ours; its text says what, where and what to do."""

    retryable: ClassVar[bool] = False


class InvalidRequestError(OnagerError):
    """The caller asked for something that can never work."""


class InvalidSettingError(InvalidRequestError):
    """A flag, an environment variable or a conf key has a value that cannot be used."""

    def __init__(self, name: str, value: object, why: str) -> None:
        shown = value
        if isinstance(value, str):
            # A setting's value counts, too; a flag's is a path or an address: `secrets/ca.pem` is no secret.
            shown = shown_value(name, value) if "." in name or is_secret(name) else shown_text(value)
        if isinstance(shown, str) and len(shown) > _VALUE_CHARS:
            shown = f"{shown[:_VALUE_CHARS]}…"
        super().__init__(f"{name[:_VALUE_CHARS]}={shown!r}: {why}")
        self.name = name
        self.value = shown


class RequestTooLargeError(InvalidRequestError):
    """A part of a request is larger than the service takes."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int, advice: str) -> None:
        super().__init__(f"{what} is {size_bytes:,} bytes, more than the limit of {limit_bytes:,}: {advice}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class NotFoundError(OnagerError):
    """The requested object does not exist."""


class JobNotFoundError(NotFoundError):
    """No job of that id is active, or has ended within its retention."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} is not known here: it was never submitted, or its record is past retention")
        self.job_id = job_id


class ResultExpiredError(NotFoundError):
    """The job succeeded, but its result was removed after retention."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the result of job {job_id} was removed after its retention; submit the query again")
        self.job_id = job_id


class JobConflictError(OnagerError):
    """A job of that id exists and is a different one."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job id {job_id} belongs to another query; submit this one under a new id")
        self.job_id = job_id


class JobNotEndedError(OnagerError):
    """Only a job that has ended can be submitted again."""

    retryable = True

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is {state}: it can be retried once it has ended; onager cancel ends it now")
        self.job_id = job_id
        self.state = state


class ResultNotReadyError(OnagerError):
    """The job has not succeeded yet, so there is nothing to fetch."""

    retryable = True

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is {state}: its result can be fetched once it is successful")
        self.job_id = job_id
        self.state = state


class JobEndedError(OnagerError):
    """The job ended without a result."""

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailedError(JobEndedError):
    """The job failed; `error_class`, `sql_state` and `query_context` are Spark's own where there are such."""

    def __init__(
        self,
        job_id: str,
        message: str,
        error_class: str | None = None,
        *,
        sql_state: str | None = None,
        query_context: str | None = None,
        details: str | None = None,
    ) -> None:
        super().__init__(job_id, message)
        self.error_class = error_class
        self.sql_state = sql_state
        self.query_context = query_context
        self.details = details


class JobCancelledError(JobEndedError):
    """The job was cancelled."""


class BusyError(OnagerError):
    """Too many calls of this kind are being served already."""

    retryable = True


class OneAtATimeError(BusyError):
    """A slow and memory-hungry call is in progress: it has to end first."""

    retryable = False


class SchedulerUnreachableError(OnagerError):
    """No scheduler of those given answered."""

    retryable = True

    def __init__(self, addresses: str, why: str) -> None:
        super().__init__(
            f"no scheduler answers at {addresses} ({why}); is one running there? (onager standalone, onager scheduler)"
        )
        self.addresses = addresses
        self.why = why


class TlsError(SchedulerUnreachableError):
    """No safe connection to a scheduler, or to an executor in push mode, was made.

    `reason` is one of wants_tls, not_tls, wrong_authority, expired, not_yet_valid, wrong_host, certificate_wanted,
    certificate_refused.
    """

    retryable = False

    def __init__(self, addresses: str, reason: str, why: str) -> None:
        OnagerError.__init__(self, f"no safe connection to {addresses}: {why}")
        self.addresses = addresses
        self.why = why
        self.reason = reason


class ExecutorUnreachableError(OnagerError):
    """An executor in push mode did not answer."""

    retryable = True

    def __init__(self, executor_id: str, address: str, why: str) -> None:
        super().__init__(f"executor {executor_id} does not answer at {address} ({why}); can it be reached from here?")
        self.executor_id = executor_id
        self.address = address


class ConnectUnservedError(OnagerError):
    """No executor answered a request of a Spark Connect session."""

    retryable = True

    def __init__(self, why: str) -> None:
        super().__init__(f"Spark did not answer: {why}; look at `onager executors`")


class ConnectGivenUpError(OnagerError):
    """A request of a Spark Connect session took too long, or ended executors: sent again, it would do so again."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Spark gave the request up: {why}; simplify the statement (an expression of constants is computed while "
            "the statement is analyzed), or look at the executors' logs"
        )


class VersionMismatchError(OnagerError):
    """Two processes speak different versions of the protocol or run different versions of Spark."""


class UnknownExecutorError(OnagerError):
    """The executor is not registered in this incarnation; it has to register again."""

    retryable = True

    def __init__(self, executor_id: str) -> None:
        super().__init__(f"executor {executor_id} is not registered in this incarnation; register again")
        self.executor_id = executor_id


class ExecutorReplacedError(OnagerError):
    """A later process registered under the executor's id; this one has to end."""

    def __init__(self, executor_id: str) -> None:
        super().__init__(
            f"another executor registered as {executor_id} after this one: give each a name of its own (--executor-id)"
        )
        self.executor_id = executor_id


class StateBackendError(OnagerError):
    """The state backend refused or could not do something."""


class StateUnavailableError(StateBackendError):
    """The store did not answer; nothing was written."""

    retryable = True


class StateFullError(StateUnavailableError):
    """The store is full until an operator makes space; nothing was written."""


class StateAccessError(StateBackendError):
    """The store rejects our credentials, or does not let their user do this."""


class StateLockedError(StateBackendError):
    """Another process has the state directory open."""


class StateNotWritableError(StateBackendError):
    """The state directory cannot be written."""


class StateCorruptError(StateBackendError):
    """The store, or a record in it, is damaged."""


class SchemaVersionError(StateBackendError):
    """Another release of Onager wrote a record, in a way that this one cannot read."""

    def __init__(self, what: str, found: int | str, supported: int | str) -> None:
        release = "an older release" if _numbers(found) < _numbers(supported) else "a newer release"
        super().__init__(
            f"{what} is of {release} of Onager: it has schema version {found}, and Onager {__version__} reads "
            f"{supported}; use the release of Onager that wrote it (CHANGELOG.md says how to move to a newer one)"
        )


def _numbers(version: int | str) -> list[int]:
    """Return the numbers of a version, for comparisons; what is no number counts as none."""
    return [int(part) for part in str(version).split(".") if part.isdecimal()]


class FeatureMissingError(SchemaVersionError):
    """A record or a report uses features of a newer release of Onager."""

    def __init__(self, what: str, missing: Iterable[str]) -> None:
        StateBackendError.__init__(
            self, f"{what} needs {', '.join(missing)}, which Onager {__version__} lacks: use a newer release here"
        )


class LimitExceededError(StateBackendError):
    """A transaction or a value is larger than the contract allows; nothing was sent."""


class OutcomeUnknownError(StateBackendError):
    """The write may or may not have happened: read before deciding again."""


class WatchCompactedError(StateBackendError):
    """Events between the asked revision and now are gone: list again and watch from there."""

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"events from revision {revision} are compacted up to {compacted}; list again")
        self.revision = revision
        self.compacted = compacted


class LeaseExpiredError(StateBackendError):
    """The lease is gone, and with it what was bound to it."""


class LockTimeoutError(StateBackendError):
    """Another holder kept the lock for as long as the caller would wait."""

    retryable = True


class PlanningError(OnagerError):
    """The query cannot be planned."""


class UnsupportedPlanError(PlanningError):
    """The plan holds a construct that cannot run distributed."""

    def __init__(self, construct: str, advice: str, *, runs_whole: bool = True) -> None:
        """*runs_whole*: whether the query may run as a single process instead, on one executor."""
        super().__init__(f"{construct} is not supported: {advice}")
        self.construct = construct
        self.advice = advice
        self.runs_whole = runs_whole


class SideEffectError(PlanningError):
    """A statement would change something while the job is planned, or does what Onager does not do."""

    def __init__(
        self, statement: str, advice: str, why: str = "would change something while the job is planned"
    ) -> None:
        """*why* goes on behind the statement."""
        super().__init__(f"{statement} {why}: {advice}")
        self.statement = statement
        self.advice = advice
        self.why = why


class UserCodeError(PlanningError):
    """The job's Python function raised, or ended its process; `traceback` covers only the user's own code."""

    def __init__(self, message: str, traceback: str = "", *, raised: str = "") -> None:
        """*raised*: the class of the exception, or Spark's error class."""
        super().__init__(f"{message}\n\n{traceback}" if traceback else message)
        self.message = message
        self.traceback = traceback
        self.raised = raised


class PlanningTimeoutError(PlanningError):
    """Planning the job, or its Python function, took too long."""

    def __init__(self, timeout_s: float, setting: str) -> None:
        super().__init__(
            f"planning the job took more than {timeout_s:g} s and was stopped; if it needs longer, submit the job with "
            f"a larger {setting} (such as --conf {setting}=2h)"
        )
        self.timeout_s = timeout_s


class CatalogConflictError(OnagerError):
    """Another job has changed what this one was planned on in the catalog."""

    retryable = True

    def __init__(self, name: str, why: str) -> None:
        """*name*: what was changed, such as ``table default.t``; *why*: how, such as ``it was dropped``."""
        super().__init__(f"{name} was changed by another job while this one ran ({why})")
        self.name = name
        self.why = why


class CatalogUnavailableError(OnagerError):
    """A catalog other than Onager's own could not be asked, or did not say whether it has done what it was asked."""

    retryable = True

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"the catalog {name} cannot be used: {why}")
        self.name = name
        self.why = why


class FunctionLostError(OnagerError):
    """The process of the job's function was killed during planning, not by the function itself."""

    retryable = True


class ExchangeError(OnagerError):
    """The exchange could not carry a stage's output."""


class ExchangeNotWritableError(ExchangeError):
    """The exchange directory is missing, read-only or not a directory."""


class ExchangeFullError(ExchangeError):
    """No space is left in the exchange directory."""

    retryable = True


class FetchFailedError(ExchangeError):
    """An output that a producer reported is missing or damaged."""


class PlaceNotSeenError(ExchangeError):
    """A process does not see a directory that the cluster shares: the exchange directory, or the warehouse."""

    retryable = True

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place = place


class SinkError(OnagerError):
    """A result could not be written as a dataset."""


class TargetExistsError(SinkError):
    """The target of a sink exists, and no mode says what to do with it."""

    def __init__(self, target: str) -> None:
        super().__init__(f"{target} already exists; give --mode overwrite or --mode append, or another directory")
        self.target = target


class DiskError(OnagerError):
    """A disk that a scheduler uses fails, or does not answer: the exchange directory, or another directory."""

    retryable = True

    def __init__(self, why: str, *, hangs: bool = False, is_begun: bool = True) -> None:
        super().__init__(f"{why}: look at the disk, or the mount, on the machine of this scheduler")
        self.hangs = hangs
        self.is_begun = is_begun
