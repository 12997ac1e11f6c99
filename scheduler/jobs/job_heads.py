"""Heads of jobs.

Small records, written with the events that change them, so that finding work needs no whole graphs.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import structlog
from pydantic import AfterValidator, Field

from onager.caches import cache_of
from onager.clock import Clock
from onager.errors import SchemaVersionError, StateBackendError, StateCorruptError
from onager.execution_graph import (
    ExecutionGraph,
    Failed,
    FailedStage,
    FusedStage,
    JobState,
    Succeeded,
    SuccessfulStage,
    SupersededStage,
    has_runnable_work,
    reusable_stages,
    taken_in,
)
from onager.ids import JobId, script_of
from onager.job_settings import ReuseScope
from onager.redaction import shown_name
from onager.scheduler.loops import watching
from onager.scheduler.records import Record
from onager.state_backend import (
    Committed,
    EventKind,
    Keyspace,
    KeyValue,
    Op,
    Put,
    StateBackendClient,
    commit_settled,
    each_page,
    revision_found,
)
from onager.supervision import run_loops

log = structlog.get_logger(__name__)

_ERROR_CHARS: Final = 300
_PAGE: Final = 1_000
_WRITTEN_AT_ONCE: Final = 32
_OWN: Final = 256
_LOOKS, _LOOK_S = 200, 0.005

CleanUpDue = Literal["none", "intermediate", "all"]
"""What still has to be removed of a job's exchange data: nothing, all but its result, or all."""


DueFlag = Literal["is_notice_due", "is_trace_due"]
"""The fields of a head that say what is due to the outside for an ended job."""


class JobTerms(Record):
    """The terms of a job's submission: how many slots it gets beside others, and who submitted it."""

    weight: float = 1.0
    """Its share of the slots relative to other jobs."""
    session: str = ""
    """Jobs of the same session share a limit of running tasks."""
    session_max_tasks: int = 0
    """How many tasks the session may have running for this job to get another one; 0 for any number."""
    principal: str = ""
    """The name of the token with which it was submitted; empty without tokens, and for a token without a name."""
    retry_of: str = ""
    """The job whose specification was submitted again."""
    program_id: str = ""
    """Of a retry of a program: the first job of it, whose record it goes on with."""
    labels: dict[str, str] = Field(default_factory=dict)
    """What its user finds it by."""
    deadline_ms: int = 0
    """When it fails if it has not ended; 0: never."""
    reuse: ReuseScope = "job"
    """Whose outputs its stages may take."""


class JobHead(JobTerms):
    """What schedulers need to know of a job without reading its graph.

    Every change of a head is a write, and wakes all schedulers. So no field may change with each task, and `head_of`
    may look at each stage, but not at each task.
    """

    job_id: str
    name: Annotated[str, AfterValidator(shown_name)]
    client_id: str
    state: JobState
    submitted_ms: int
    started_ms: int | None = None
    """When its first stage was set running, which a takeover does, too; perhaps no executor has a task of it yet."""
    ended_ms: int | None = None
    stages: int = 1
    stages_done: int = 0
    has_runnable_work: bool = True
    error: str | None = None
    """The beginning of the reason why it failed."""
    sink_path: str | None = None
    result_rows: int = 0
    clean_up: CleanUpDue = "none"
    has_result: bool = True
    """False once the result was removed after its retention."""
    retires_folders: bool = False
    """Whether folders of tables go with the result: the job has replaced or dropped them."""
    is_program: bool = False
    """Whether it is a program of PySpark, which waits for no slot of tasks."""
    reusable: dict[str, int] = Field(default_factory=dict)
    """The stages whose outputs are kept for other jobs, by their fingerprints."""
    was_reusable: bool = False
    """Whether there were such stages: jobs that are active may still read their files."""
    reuses: tuple[str, ...] = ()
    """While it is active: the jobs whose outputs it has taken, ascending. Their files stay."""
    has_history: bool = True
    """False once the job's history was removed after its retention."""
    is_notice_due: bool = False
    """Whether the webhooks have to be notified that the job has ended (`onager.scheduler.engine.webhooks`)."""
    is_trace_due: bool = False
    """Whether the job's spans have to be exported (`onager.scheduler.api.tracing`)."""
    broken: str | None = None
    """Why the job's record cannot be read; such a job is left alone."""

    @property
    def is_active(self) -> bool:
        """Return whether the job has not ended and can be worked on."""
        return not self.state.is_terminal and self.broken is None

    @property
    def caches(self) -> dict[str, int]:
        """Return those of `reusable` that are rows of what a program caches: they stay for as long as it does."""
        return {fingerprint: stage_id for fingerprint, stage_id in self.reusable.items() if cache_of(fingerprint)}

    def withdrawn(self, fingerprints: Collection[str] | None = None) -> "JobHead":
        """Return the head after nobody may take outputs of the job any more; their files are to be removed.

        *fingerprints*: of these outputs; None: of all.
        """
        left = {} if fingerprints is None else {f: s for f, s in self.reusable.items() if f not in fingerprints}
        clean_up = "intermediate" if self.state is JobState.SUCCESSFUL and self.has_result else "all"
        return self.model_copy(update={"reusable": left, "clean_up": clean_up})


def head_of(graph: ExecutionGraph, terms: JobTerms) -> JobHead:
    """Return the head that goes with *graph*."""
    error = graph.outcome.failure.message[:_ERROR_CHARS] if isinstance(graph.outcome, Failed) else None
    result = graph.result_stage
    is_done = isinstance(graph.outcome, Succeeded) and result is not None
    reusable = {} if graph.is_active else reusable_stages(graph)
    return JobHead(
        job_id=graph.job_id,
        name=graph.name,
        client_id=graph.client_id,
        state=graph.state,
        submitted_ms=graph.submitted_ms,
        started_ms=graph.started_ms,
        ended_ms=graph.ended_ms,
        weight=terms.weight,
        session=terms.session,
        session_max_tasks=terms.session_max_tasks,
        principal=terms.principal,
        retry_of=terms.retry_of,
        program_id=terms.program_id,
        labels=terms.labels,
        deadline_ms=terms.deadline_ms,
        reuse=terms.reuse,
        stages=len(graph.stages),
        stages_done=_stages_done(graph),
        has_runnable_work=has_runnable_work(graph),
        error=error,
        sink_path=graph.plan.sink.path if graph.plan is not None and graph.plan.sink is not None else None,
        result_rows=sum(o.rows for o in result.ledger.outputs.values()) if is_done and result is not None else 0,
        clean_up="intermediate" if reusable else _clean_up_due(graph),
        is_program=graph.is_program,
        retires_folders=is_done and graph.plan is not None and bool(graph.plan.folders_retired),
        reusable=reusable,
        was_reusable=bool(reusable),
        reuses=tuple(sorted(taken_in(graph, range(len(graph.stages))))) if graph.is_active else (),
    )


def shows(head: JobHead, graph: ExecutionGraph) -> bool:
    """Return whether *graph* can be the one that *head* was written with; a later or earlier graph often cannot.

    It compares fields that change seldom, and that any graph with this head has: a mistaken no costs a read.
    """
    return (head.state, head.has_runnable_work, head.stages, head.started_ms) == (
        graph.state,
        has_runnable_work(graph),
        len(graph.stages),
        graph.started_ms,
    ) and head.stages_done == _stages_done(graph)


def _stages_done(graph: ExecutionGraph) -> int:
    return sum(isinstance(s, SuccessfulStage | FusedStage | SupersededStage) for s in graph.stages)


def _clean_up_due(graph: ExecutionGraph) -> CleanUpDue:
    if graph.is_active or graph.is_script or graph.is_program:
        return "none"  # a script's files are those of its steps, a program's those of its calls
    ledgers = [s.ledger for s in graph.stages]
    was_handed_out = any(ledger.outputs or ledger.attempts for ledger in ledgers)
    if not was_handed_out and not any(getattr(s, "running", None) or isinstance(s, FailedStage) for s in graph.stages):
        return "none"
    if isinstance(graph.outcome, Succeeded) and graph.plan is not None:
        is_undisturbed = not any(ledger.attempts or ledger.tasks_failed or ledger.tasks_lost for ledger in ledgers)
        outputs = graph.stages[graph.plan.result_stage_id].ledger.outputs
        if graph.plan.is_fused and is_undisturbed and all(o.is_inline for o in outputs.values()):
            return "none"  # everything lies in the store
        return "intermediate"
    return "all"


class JobHeads:
    """One scheduler's cache of all heads, kept fresh by a watch and by listing; reports changes."""

    def __init__(self, backend: StateBackendClient, clock: Clock, *, interval_ms: int) -> None:
        self._backend = backend
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._heads: dict[JobId, tuple[int, JobHead]] = {}
        self._counts: Counter[JobState] = Counter()
        self._gone: dict[JobId, int] = {}
        self._damaged: dict[JobId, int] = {}
        self._newer: set[JobId] = set()
        self._active: dict[JobId, None] = {}
        self._steps: dict[JobId, set[JobId]] = {}
        """The jobs of each script's steps."""
        self._readers: dict[JobId, set[JobId]] = {}
        """The active jobs that have taken outputs of each job."""
        self._watched = 0
        """The revision up to which every change is known here."""
        self._own: dict[bytes, JobHead] = {}
        """Heads that were written here lately, by their stored bytes."""
        self._listeners: list[Callable[[JobId, JobHead | None], None]] = []

    def listen(self, listener: Callable[[JobId, JobHead | None], None]) -> None:
        """Call *listener* at every change of a head, with None when it was removed."""
        self._listeners.append(listener)

    def get(self, job_id: JobId) -> JobHead | None:
        """Return the head as last seen."""
        found = self._heads.get(job_id)
        return None if found is None else found[1]

    async def known(self, job_id: JobId) -> JobHead | None:
        """Return the head, also of a job that another scheduler has just stored."""
        if self.get(job_id) is None:
            self.learn((await self._backend.read_txn([(Keyspace.JobHeads, job_id)])).values)
        return self.get(job_id)

    def active(self) -> list[JobHead]:
        """Return the heads of active jobs, to any thread; most of the heads are of ended ones."""
        return [head for job_id in list(self._active) if (head := self.get(job_id)) is not None]

    def snapshot(self) -> list[JobHead]:
        """Return all heads; any thread may ask."""
        return [head for _, head in list(self._heads.values())]

    def encoded(self, head: JobHead) -> bytes:
        """Return *head* as it is to be stored; it need not be decoded again when the watch reports it."""
        value = head.encoded()
        self._own[value] = head
        if len(self._own) > _OWN:
            del self._own[next(iter(self._own))]
        return value

    def steps_of(self, script_id: JobId) -> list[JobId]:
        """Return the jobs of a script's steps, in a stable order."""
        return sorted(self._steps.get(script_id, ()))

    def may_be_read(self, job_id: JobId) -> bool:
        """Return whether active jobs may read files of a job whose outputs nobody may take any more.

        Those that took one before are known here as soon as the change by which nobody may has come back by the watch.
        """
        head = self.get(job_id)
        is_sure = head is None or not head.was_reusable or self._watched >= self.revision(job_id)
        return not is_sure or bool(self._readers.get(job_id))

    async def catch_up(self, job_id: JobId) -> None:
        """Wait, a second at most, until all is known here that was written before the job's head."""
        for _ in range(_LOOKS):
            if self._watched >= self.revision(job_id):
                return
            await asyncio.sleep(_LOOK_S)

    def learn(self, found: Mapping[tuple[Keyspace, str], KeyValue | None]) -> None:
        """Take in the heads among records as a transaction has found them."""
        for (keyspace, key), item in found.items():
            known = self.revision(JobId(key))
            if keyspace is Keyspace.JobHeads and item is None and known:
                self.removed(JobId(key), known + 1)
            elif keyspace is Keyspace.JobHeads and item is not None and item.mod_revision > known:
                self._take(item)

    @property
    def has_active(self) -> bool:
        """Return whether there is an active job."""
        return bool(self._active)

    def revision(self, job_id: JobId) -> int:
        """Return the revision of the head as last seen, 0 when there is none."""
        found = self._heads.get(job_id)
        return 0 if found is None else found[0]

    def __iter__(self) -> Iterator[JobHead]:
        return iter([head for _, head in self._heads.values()])

    def __len__(self) -> int:
        return len(self._heads)

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        return {state.value: self._counts[state] for state in JobState}

    def seen(self, head: JobHead, revision: int) -> None:
        """Take in a head as of *revision*; an older one than known changes nothing."""
        job_id = JobId(head.job_id)
        if revision <= self._gone.get(job_id, 0):
            return
        known = self._heads.get(job_id)
        if known is not None and revision <= known[0]:
            return
        self._set(job_id, revision, head)
        self._gone.pop(job_id, None)
        if known is None or known[1] != head:
            self._tell(job_id, head)

    def mark_unreadable(self, job_id: JobId, why: str) -> None:
        """Leave alone a job that this scheduler cannot read, without telling the others, which perhaps can."""
        revision, head = self._heads.get(job_id, (0, unreadable_head(job_id, why)))
        unreadable = head.model_copy(update={"broken": why, "has_runnable_work": False})
        self._set(job_id, revision, unreadable)
        self._newer.add(job_id)
        if unreadable != head:  # a listener may look at the job again
            self._tell(job_id, unreadable)

    def is_newer(self, job_id: JobId) -> bool:
        """Return whether the job's version is too new to read here: others may go on with it."""
        return job_id in self._newer

    @property
    def damaged(self) -> list[tuple[JobId, int]]:
        """Return the jobs whose heads cannot be read, with these heads' revisions."""
        return [(j, r) for j, r in self._damaged.items() if self.revision(j) == r]

    def _is_whole(self, job_id: JobId) -> bool:
        return not self.is_newer(job_id) and self._damaged.get(job_id) != self.revision(job_id)

    async def put(
        self, heads: Sequence[JobHead], beside: Callable[[JobHead], Sequence[Op]] = lambda _: ()
    ) -> list[JobHead]:
        """Write *heads* over those last seen, each in one transaction with the ops of *beside*; return those written.

        A head that another scheduler has written meanwhile is left as it is. So is one that is not known whole here: a
        damaged one, which can be mended, and that of a job which only a newer version can read.
        """
        written: list[JobHead] = []
        heads = [head for head in heads if self._is_whole(JobId(head.job_id))]
        at = {head.job_id: self.revision(JobId(head.job_id)) for head in heads}
        for start in range(0, len(heads), _WRITTEN_AT_ONCE):
            some = heads[start : start + _WRITTEN_AT_ONCE]
            while some:
                expect = {(Keyspace.JobHeads, head.job_id): at[head.job_id] for head in some}
                ops = [op for h in some for op in (Put(Keyspace.JobHeads, h.job_id, self.encoded(h)), *beside(h))]
                result = await commit_settled(self._backend, ops, expect)
                if isinstance(result, Committed):
                    for head in some:
                        self.seen(head, result.revision)
                    written += some
                    break
                some = [h for h in some if revision_found(result, (Keyspace.JobHeads, h.job_id)) == at[h.job_id]]
        return written

    def removed(self, job_id: JobId, revision: int) -> None:
        """Take in that the head is gone as of *revision*."""
        known = self._heads.get(job_id)
        if known is not None and revision > known[0]:
            self._counts[_shown_state(self._heads.pop(job_id)[1])] -= 1
            self._note_reads(job_id, known[1].reuses, ())
            self._active.pop(job_id, None)
            if (script_id := script_of(job_id)) is not None and (steps := self._steps.get(script_id)) is not None:
                steps.discard(job_id)
                if not steps:
                    del self._steps[script_id]
            self._gone[job_id] = revision
            self._damaged.pop(job_id, None)
            self._newer.discard(job_id)
            self._tell(job_id, None)

    async def refresh(self, *, is_strict: bool = False) -> int:
        """List all heads.

        Return the revision to watch from. A damaged one is logged, or with *is_strict* a newer one raised.
        """
        found: set[JobId] = set()
        first_revision = 0
        async for page in each_page(self._backend.scan, Keyspace.JobHeads):
            first_revision = first_revision or page.revision
            for item in page:
                found.add(JobId(item.key))
                if item.mod_revision > self.revision(JobId(item.key)):
                    self._take(item, is_strict=is_strict)
            await asyncio.sleep(0)
        for job_id in [j for j in self._heads if j not in found]:
            if self.revision(job_id) < first_revision:
                self.removed(job_id, first_revision)
        if len(self._gone) > _PAGE:
            self._gone = {j: r for j, r in self._gone.items() if r >= first_revision}
        return first_revision

    async def run(self) -> None:
        """Watch and list for as long as the scheduler lives."""
        await run_loops(watch_of_heads=watching(self._watch, again_s=self._interval_s), listing_of_heads=self._list())

    async def _watch(self) -> None:
        revision = self._watched = await self.refresh()
        async with self._backend.watch(Keyspace.JobHeads, from_revision=revision + 1) as events:
            async for event in events:
                self._watched = max(self._watched, event.mod_revision)
                if event.kind is EventKind.DELETE:
                    self.removed(JobId(event.key), event.mod_revision)
                elif event.mod_revision > self.revision(JobId(event.key)):
                    self._take(KeyValue(event.key, event.value, event.mod_revision))

    async def _list(self) -> None:
        pause_s = self._interval_s
        while True:
            await asyncio.sleep(pause_s)
            started_s = self._clock.monotonic_s()
            try:
                await self.refresh()
            except StateBackendError as error:
                log.warning("job_heads_listing_failed", error=str(error))
            # Listing is a safety net beside the watch: it may take a twentieth of the time.
            pause_s = max(self._interval_s, 20 * (self._clock.monotonic_s() - started_s))

    def _take(self, item: KeyValue, *, is_strict: bool = False) -> None:
        self._newer.discard(JobId(item.key))
        try:
            head = self._own.pop(item.value, None) or JobHead.decoded(item.value, f"JobHeads/{item.key}")
        except (StateCorruptError, SchemaVersionError) as error:
            if is_strict and isinstance(error, SchemaVersionError):
                raise
            log.error("job_head_unreadable", job_id=item.key, error=str(error))  # noqa: TRY400
            if isinstance(error, StateCorruptError):
                self._damaged[JobId(item.key)] = item.mod_revision
            else:
                self._newer.add(JobId(item.key))
            head = unreadable_head(item.key, str(error))
        self.seen(head, item.mod_revision)

    def _set(self, job_id: JobId, revision: int, head: JobHead) -> None:
        if (known := self._heads.get(job_id)) is not None:
            self._counts[_shown_state(known[1])] -= 1
        self._note_reads(job_id, () if known is None else known[1].reuses, head.reuses)
        self._counts[_shown_state(head)] += 1
        self._heads[job_id] = (revision, head)
        if (script_id := script_of(job_id)) is not None:
            self._steps.setdefault(script_id, set()).add(job_id)
        if head.is_active:
            self._active[job_id] = None
        else:
            self._active.pop(job_id, None)

    def _note_reads(self, job_id: JobId, before: Sequence[str], now: Sequence[str]) -> None:
        if before == now:
            return
        for source in map(JobId, before):
            self._readers[source].discard(job_id)
            if not self._readers[source]:
                del self._readers[source]
        for source in map(JobId, now):
            self._readers.setdefault(source, set()).add(job_id)

    def _tell(self, job_id: JobId, head: JobHead | None) -> None:
        for listener in self._listeners:
            listener(job_id, head)


def _shown_state(head: JobHead) -> JobState:
    return head.state if head.broken is None else JobState.FAILED


def unreadable_head(job_id: str, why: str) -> JobHead:
    """Return the placeholder for a head that cannot be read."""
    return JobHead(
        job_id=job_id, name="", client_id="", state=JobState.FAILED, submitted_ms=0, has_runnable_work=False, broken=why
    )
