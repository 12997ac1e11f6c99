"""What is stored of a program that outlives its processes: whose it is, and the attempt of it that counts."""

import hashlib
import hmac
import re
from typing import Final, NamedTuple
from urllib.parse import quote

from onager.errors import NotFoundError
from onager.program_errors import AttemptSupersededError
from onager.protocol import onager_pb2 as pb
from onager.scheduler.program_limits import Usage
from onager.scheduler.records import Expected, Record
from onager.state_backend import Keyspace

_SECRET: Final = re.compile(r"[0-9a-f]{32,64}")


class ProgramKey(NamedTuple):
    """Whose program it is, by the name of a token (empty without tokens), and its id."""

    owner: str
    program_id: str

    @property
    def path(self) -> str:
        """Return the key in the store."""
        return f"{quote(self.owner, safe='') or '%'}/{self.program_id}"

    @property
    def place(self) -> tuple[Keyspace, str]:
        """Return where its record is."""
        return Keyspace.Programs, self.path


class FailedCall(Record):
    """A call whose error has ended a program."""

    task: str
    number: int
    tasks: int = 0
    """How many tasks its task had started by then."""

    def is_before(self, task: str, number: int) -> bool:
        """Return whether another call was made behind it, by the same task, or by one that this has started since."""
        if task == self.task:
            return number >= self.number
        child = task.removeprefix(f"{self.task}.").partition(".")[0]
        return task.startswith(f"{self.task}.") and int(child) >= self.tasks

    @property
    def message(self) -> pb.FailedCall:
        """Return it as a message."""
        return pb.FailedCall(task=self.task, number=self.number, tasks=self.tasks)


class RetriedFrom(Record):
    """From where a program was gone on with after its end."""

    attempt: int
    """The last one before."""
    call: FailedCall | None = None
    """From which on calls were made again, if there was one."""
    is_other: bool = False
    """Whether another text of the program has gone on: all that it prints is shown."""

    @property
    def message(self) -> pb.RetriedFrom:
        """Return it as a message."""
        call = None if self.call is None else self.call.message
        return pb.RetriedFrom(attempt=self.attempt, call=call, other=self.is_other)


class Mended(NamedTuple):
    """Another text of a program, that is to go on with its record."""

    digest: str
    keeps: bool = False
    """Whether writes that are done stand, also where this one has other ones."""


class Mending(Record):
    """What a program was before a mended one took its place, whose calls are matched with what was recorded.

    A mended program that ends before it has written anything is put back to this.
    """

    text: int
    digest: str
    job_id: str
    ended_ms: int
    exit_code: int
    why_ended: str
    failed: FailedCall | None = None
    calls: int = 0
    """That were recorded, and stand."""
    earlier: int = 0
    """Records of calls of all earlier texts."""
    keeps: bool = False
    """Whether writes that are done stand, also where the mended program has other ones."""
    sessions: tuple[str, ...] = ()
    """The paths of the sessions in which settings and views are made again."""
    before: "Mending | None" = None
    """What that text was gone on with from, if it was itself a mended one."""


class ProgramRecord(Record):
    """A program, and the attempt of it that counts."""

    owner: str
    program_id: str
    user: str
    """Whose its sessions are: who began it, whoever goes on with it."""
    seed: str
    """What its own random numbers follow from."""
    attempt: int
    digest: str = ""
    """SHA-256 of the program's file."""
    arguments: str = ""
    """As a JSON array."""
    secret_digest: str
    """SHA-256 of what only this attempt knows."""
    calls_before: int = 0
    """Calls that were recorded when the attempt began."""
    store_bytes_before: int = 0
    """What these have in the store."""
    file_bytes_before: int = 0
    """And in files."""
    barren: int = 0
    """Attempts before it, in a row, that recorded nothing new, though their executors are there."""
    lost: int = 0
    """And those that were lost with their executors."""
    began_ms: int = 0
    """When the first attempt began."""
    attempt_ms: int = 0
    """When this one did."""
    host: str = ""
    """The life of the executor that runs this one; empty for a program of another machine."""
    ended_ms: int = 0
    """When the program ended; 0: it has not."""
    exit_code: int = 0
    why_ended: str = ""
    """Why, unless it ended by itself."""
    failed: FailedCall | None = None
    """The call whose error ended it, if one did."""
    job_id: str = ""
    """The job that goes on with it: its own, or that of its last retry; empty for a program of another machine."""
    retried: tuple[RetriedFrom, ...] = ()
    """One for each retry."""
    retry_says: str = ""
    """What the last retry found, for people."""
    text: int = 0
    """The number of the program's text; 0: the first one. Each has its own records of calls."""
    texts: int = 0
    """The largest number of a text that was given."""
    mending: Mending | None = None
    """Of a mended program: with whose calls its own are matched."""

    @property
    def has_failed(self) -> bool:
        """Return whether it has ended, and not by itself with exit code 0."""
        return bool(self.ended_ms) and bool(self.exit_code or self.why_ended)

    @property
    def may_go_on(self) -> bool:
        """Return whether calls of it may come: it has not ended, or a retry goes on with it."""
        return not self.ended_ms or (self.has_failed and bool(self.job_id))

    @property
    def key(self) -> ProgramKey:
        """Return the program's key."""
        return ProgramKey(self.owner, self.program_id)

    @property
    def usage_before(self) -> Usage:
        """Return what was recorded when the attempt began."""
        earlier = 0 if self.mending is None else self.mending.earlier
        return Usage(self.calls_before - earlier, self.store_bytes_before, self.file_bytes_before)

    @property
    def calls_path(self) -> str:
        """Return the path below which the records of its calls are."""
        return calls_path(self.key, self.text)

    @property
    def marks_path(self) -> str:
        """Return the path below which marks are: of tasks whose calls are not in the record, and of a new write."""
        return f"{self.key.path}/marks/v{self.text}"

    @property
    def written_mark(self) -> tuple[Keyspace, str]:
        """Return the place that is taken once a mended program has begun a write of its own."""
        return Keyspace.ProgramCalls, f"{self.marks_path}/written"

    def put_back(self) -> "ProgramRecord":
        """Return the record as it was before the program was mended; what was printed since counts for nothing."""
        mending = self.mending
        assert mending is not None
        kept = {name: getattr(mending, name) for name in _PUT_BACK}
        retried = (*self.retried, RetriedFrom(attempt=self.attempt, is_other=True))
        changed = {"mending": mending.before, "retried": retried, "secret_digest": "", "retry_says": ""}
        return self.model_copy(update={**kept, **changed})

    @property
    def folder(self) -> str:
        """Return the name of the folder of its files, which no other program has, nor a later one of its id."""
        return hashlib.sha256(f"files of {self.seed}".encode()).hexdigest()[:32]


_PUT_BACK: Final = ("text", "digest", "job_id", "ended_ms", "exit_code", "why_ended", "failed")


def calls_path(key: ProgramKey, text: int) -> str:
    """Return the path below which the calls of a text of a program are recorded."""
    return f"{key.path}/v{text}" if text else key.path


class Fence(NamedTuple):
    """What a write of an attempt expects, so that none of an earlier attempt has an effect."""

    key: ProgramKey
    revision: int

    @property
    def expected(self) -> Expected:
        """Return what a transaction expects."""
        return {self.key.place: self.revision}


def digest_of(secret: str) -> str:
    """Return what is stored of the *secret* of an attempt."""
    return hashlib.sha256(secret.encode()).hexdigest()


def knows(record: ProgramRecord, secret: str) -> bool:
    """Return whether *secret* is that of the attempt that counts."""
    return hmac.compare_digest(record.secret_digest, digest_of(secret))


def superseded(record: ProgramRecord, attempt: int) -> AttemptSupersededError:
    """Return the error of an *attempt* that does not count any more."""
    return AttemptSupersededError(record.program_id, attempt, record.attempt, has_ended=bool(record.ended_ms))


def unknown(key: ProgramKey) -> NotFoundError:
    """Return the error for a program that is not there."""
    whose = f" of {key.owner}" if key.owner else ""
    return NotFoundError(f"there is no program {key.program_id}{whose}")


def is_secret(text: str) -> bool:
    """Return whether *text* can be the secret of an attempt."""
    return _SECRET.fullmatch(text) is not None
