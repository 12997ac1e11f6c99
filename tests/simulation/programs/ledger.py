"""What must hold for programs, whatever is killed.

- A write has its effect once. A program that ends by itself has had the effects that its last attempt has received
  answers for, in its order, and no others: as one process that nobody kills.
- An answer that an attempt was given is the answer that every later attempt gets, and it is the answer to that call.
- Nothing that a call writes comes from an attempt after a later one has begun, or after the end.
- A program ends with the code that its process returned, or since its user cancelled it.
"""

import random  # noqa: TID251 seeded
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onager.errors import InvalidRequestError, NotFoundError, OnagerError
from onager.execution_graph import Cancelled, Failed, JobState, Succeeded
from onager.protocol import onager_pb2 as pb
from onager.scheduler.connect.records import SessionRecord
from onager.scheduler.program_records import ProgramRecord
from onager.scheduler.programs import MAX_BARREN
from onager.state_backend import EventKind, Keyspace
from onager.state_backend.local import Group
from tests.simulation.data import rows_of
from tests.simulation.programs.users import Submitted

if TYPE_CHECKING:
    from tests.simulation.executions import SeenJob
    from tests.simulation.world import World

CALLS = "connect-"
"""How ids of the jobs of calls begin."""
_OF_CALLS = (Keyspace.ProgramCalls, Keyspace.ConnectSessions, Keyspace.ConnectEntries)
_ENDS = {JobState.SUCCESSFUL: pb.SUCCESSFUL, JobState.FAILED: pb.FAILED, JobState.CANCELLED: pb.CANCELLED}


@dataclass(slots=True)
class _Call:
    """A call, as an attempt made it."""

    words: str
    """Of a command."""
    received: str = ""
    """What came of it; empty: it is not known yet."""

    @property
    def is_write(self) -> bool:
        return self.words.startswith("INSERT")


@dataclass(slots=True)
class _Program:
    """A program, as it is stored, and as its attempts have seen it."""

    record: ProgramRecord | None = None
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By the label of the call: the attempt that got it first, and the answer."""
    names: dict[str, str] = field(default_factory=dict)
    """The labels of calls, by the names under which they are recorded."""
    made: dict[int, dict[str, _Call]] = field(default_factory=lambda: defaultdict(dict))
    """By attempts and labels, in their order."""
    conf: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """What each attempt has set."""
    codes: dict[int, int] = field(default_factory=dict)
    """With what each attempt has ended that ended by itself."""

    def counts(self, attempt: int) -> bool:
        """Return whether calls of *attempt* may have an effect."""
        return self.record is None or (self.record.attempt == attempt and not self.record.ended_ms)


class Ledger:
    """Follows the programs of a world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"answers {world.seed}")
        self.submitted: dict[str, Submitted] = {}
        self._programs: dict[str, _Program] = defaultdict(_Program)
        self._labels: dict[str, str] = {}
        """Of the calls, by the ids of their jobs."""
        self._effects: dict[str, str] = {}
        """The jobs that have written, by the labels of the calls, in the order of the writes."""
        self._sessions: dict[str, dict[str, str]] = {}
        """What is set in sessions, by the programs whose they are."""
        self.killed: Counter[str] = Counter()
        """How many processes of each program were killed."""

    def fail(self, what: str) -> None:
        self._world.observer.fail(what)

    def draw(self) -> int:
        """Return what nobody can know before."""
        return self._rng.randrange(1_000_000)

    # ---------------------------------------------------------------- what attempts see

    def asked(self, program_id: str, attempt: int, label: str, name: str, words: str) -> None:
        """An attempt makes the call *label*, under *name*."""
        program = self._programs[program_id]
        program.names.setdefault(name, label)
        program.made[attempt][label] = _Call(words)
        self._world.trace(f"{program_id}@{attempt} makes call {name}, {label} {words}")

    def answered(self, program_id: str, attempt: int, label: str, received: str) -> None:
        """A call has its outcome."""
        program = self._programs[program_id]
        program.made[attempt][label].received = received
        self._world.trace(f"{program_id}@{attempt} receives for {label}: {received}")
        first, before = program.answers.setdefault(label, (attempt, received))
        self._world.observer.counts["calls of programs replayed"] += first != attempt
        self._world.observer.counts["calls of programs"] += first == attempt
        if before != received:
            self.fail(f"attempt {first} received for {label}: {before}, and attempt {attempt}: {received}")

    def check_rows(self, program_id: str, label: str, rows: list[int]) -> None:
        """The rows of a query are those that count of its job."""
        jobs = [self._world.observer.jobs[job_id] for job_id, of in self._labels.items() if of == label]
        if not any(self._rows(job) == rows for job in jobs):
            self.fail(f"{program_id} got the rows {rows} for {label}, which its job has not")

    def _rows(self, job: "SeenJob") -> list[int] | None:
        result = None if job.final is None else job.final.result_stage
        if result is None:
            return None
        outputs = result.ledger.outputs
        values = [self._world.exchange.written[outputs[p].nonce].value for p in sorted(outputs)]
        return [row for value in values for row in rows_of(value)]

    def is_set(self, program_id: str, attempt: int, key: str, value: str) -> None:
        """An attempt has received that a setting is set."""
        self._programs[program_id].conf[attempt][key] = value

    def ended_itself(self, program_id: str, attempt: int, code: int) -> None:
        """The process of an attempt ends with *code*."""
        self._programs[program_id].codes[attempt] = code

    def not_retried(self, program_id: str, error: OnagerError) -> None:
        """A retry is refused."""
        record = self._programs[program_id].record
        has_succeeded = record is not None and bool(record.ended_ms) and not record.has_failed
        expected = NotFoundError if record is None else InvalidRequestError if has_succeeded else None
        if expected is None or not isinstance(error, expected):
            self.fail(f"{program_id} cannot be retried: {type(error).__name__}: {error}")

    # ---------------------------------------------------------------- what is done

    def planned(self, job_id: str, label: str) -> None:
        """The job of a call is planned."""
        if self._labels.setdefault(job_id, label) != label:
            self.fail(f"{job_id} is the job of {self._labels[job_id]}, and of {label}")

    def published(self, job_id: str) -> None:
        """A job writes."""
        label = self._labels.get(job_id)
        if label is None:
            return
        self._world.observer.counts["writes of programs"] += 1
        if (first := self._effects.setdefault(label, job_id)) != job_id:
            self.fail(f"{label} is written by {first}, and again by {job_id}")

    def deliver(self, group: Group, caller: str) -> None:
        """See a commit; *caller*: the attempt whose call writes it, as it names itself, if one does."""
        if caller:
            program_id, attempt, _ = caller.split("/")
            known = self._world.observer.jobs
            new = [e for e in group.events if e.keyspace is Keyspace.ActiveJobs and e.key not in known]
            if not self._programs[program_id].counts(int(attempt)):
                for event in (*new, *(e for e in group.events if e.keyspace in _OF_CALLS)):
                    self.fail(
                        f"attempt {attempt} of {program_id} does not count, and writes {event.keyspace}/{event.key}"
                    )
        for event in group.events:
            is_put = event.kind is EventKind.PUT
            if event.keyspace is Keyspace.ProgramCalls and not is_put:
                _, program_id, name = event.key.split("/", 2)
                self._programs[program_id].answers.pop(self._programs[program_id].names.get(name, ""), None)
            if event.keyspace is Keyspace.ConnectSessions and is_put:
                session = SessionRecord.decoded(event.value, event.key)
                self._sessions[session.program.partition("/")[2]] = session.conf
            if event.keyspace is Keyspace.Programs and is_put:
                self._moved(ProgramRecord.decoded(event.value, event.key))

    def _moved(self, record: ProgramRecord) -> None:
        program = self._programs[record.program_id]
        before, program.record = program.record, record
        if before is not None and record.attempt < before.attempt:
            self.fail(f"{record.program_id} goes back from attempt {before.attempt} to {record.attempt}")
        self._world.observer.counts["attempts of programs"] += before is None or record.attempt != before.attempt
        if not record.ended_ms or record.why_ended or record.retried:
            return
        is_set, found = program.conf[record.attempt], self._sessions.get(record.program_id, {})
        if found != is_set:
            self.fail(f"{record.program_id} has set {is_set}, and its session has {found}")

    # ---------------------------------------------------------------- when faults have ended

    def are_calls_over(self) -> bool:
        """Return whether no job of a call goes on."""
        jobs = self._world.observer.jobs.values()
        return not any(job.final is None for job in jobs if job.job_id.startswith(CALLS))

    def check(self) -> None:
        """Check what has become of all programs."""
        for submitted in self.submitted.values():
            for job_id, state in submitted.jobs.items():
                # The retry of a program that has never begun is a program of its own.
                program_id = job_id if job_id in self._programs else submitted.program_id
                is_last = job_id == next(reversed(submitted.jobs))
                self._check_job(program_id, self._world.observer.jobs[job_id], state, is_last=is_last)
        for program_id, program in self._programs.items():
            self._check_effects(program_id, program)

    def _check_job(self, program_id: str, job: "SeenJob", state: int, *, is_last: bool) -> None:
        if job.final is None or _ENDS[job.final.state] != state:
            self.fail(f"{job.job_id} ended {job.final and job.final.state}, and its client got {state}")
            return
        self._world.observer.counts[f"programs {job.final.state}"] += 1
        record = self._programs[program_id].record
        match job.final.outcome:
            case Succeeded() if record is None or not record.ended_ms or record.has_failed:
                self.fail(f"{job.job_id} was successful, and its program not: {record}")
            case Cancelled() if not any(job.job_id in client.cancelled for client in self._world.clients):
                self.fail(f"{job.job_id} was cancelled by nobody")
            case Failed(failure=failure) if is_last and not self._has_cause(program_id, failure.message):
                self.fail(f"{job.job_id} failed without cause: {failure.message}")
            case _:
                pass

    def _has_cause(self, program_id: str, message: str) -> bool:
        record = self._programs[program_id].record
        if record is None or not record.ended_ms:
            return False
        if record.why_ended:
            return "attempts in a row" in message and self.killed[program_id] >= MAX_BARREN
        return message == f"the program ended with exit code {record.exit_code}"

    def _check_effects(self, program_id: str, program: _Program) -> None:
        record = program.record
        if record is None or record.why_ended:
            return
        if program.codes.get(record.attempt) != record.exit_code:
            self.fail(f"{program_id} ended with {record.exit_code}, and its attempts with {program.codes}")
        made = program.made[record.attempt]
        done = [label for label in self._effects if label.startswith(f"{program_id}:")]
        for label, call in made.items():
            if call.is_write and call.received and (label in self._effects) != call.received.startswith("answer"):
                is_written = "is" if label in self._effects else "is not"
                self.fail(f"{label} {is_written} written, and its attempt received {call.received}")
        if others := [label for label in done if label not in made]:
            self.fail(f"{others} are written, and attempt {record.attempt} of {program_id} has not asked for that")
        threads = defaultdict(list)
        for label in done:
            threads[label.rpartition(".")[0]].append(list(made).index(label) if label in made else -1)
        for thread, places in threads.items():
            if places != sorted(places):
                self.fail(f"the writes of {thread} come in another order than it has made them: {places}")
