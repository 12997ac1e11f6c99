"""Retention: removes a job's result and history, later its record and blobs, and the audit, when their time is over.

The time in the job's head says when. The scheduler whose turn it is does it, for many jobs at once; doing it twice is
harmless.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog

from onager.errors import DiskError, OnagerError, StateCorruptError
from onager.execution_graph import JobState
from onager.ids import BlobDigest, JobId, script_of
from onager.scheduler import timing
from onager.scheduler.catalog.collecting import OrphanedPages
from onager.scheduler.cluster.rounds import Rounds
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.jobs import audit
from onager.scheduler.jobs.archive import HistoryArchive
from onager.scheduler.jobs.audit_notes import is_note
from onager.scheduler.jobs.blobs import blobs_of
from onager.scheduler.jobs.job_heads import JobHead
from onager.scheduler.jobs.job_log import HEADER_KEYSPACES
from onager.state_backend import (
    ABSENT,
    MAX_TXN_OPS,
    Committed,
    Delete,
    DeleteRange,
    Keyspace,
    Op,
    each_page,
)

log = structlog.get_logger(__name__)

_REMOVED_AT_ONCE: Final = 16
"""Jobs removed by one transaction; each takes eight operations."""
_BATCHES_AT_ONCE: Final = 12
"""Transactions in flight: the store writes concurrent ones together."""
_UNSETTLED_MS: Final = 60_000
"""How long after a job had to stay it is looked at again."""
_PARTS: Final = (Keyspace.GraphChunks, Keyspace.JobLog, Keyspace.History, Keyspace.Results)


async def _settles_nothing(_: Iterable[JobHead]) -> set[str]:
    return set()


class Retention:
    """Removes results, histories, and later records, whose time is over."""

    def __init__(self, env: Env, store: Store, view: ClusterView) -> None:
        self._env = env
        self._store = store
        self._view = view
        self._archive = HistoryArchive(store.backend, env.settings.history_dir) if env.settings.history_dir else None
        self._due: list[tuple[int, JobId]] = []
        """A heap of the times at which to look at each job that has ended and is not removed."""
        self._awaited: set[JobId] = set()
        """The jobs in `_due`, each once."""
        self._unsettled: set[JobId] = set()
        """Of those that are swept now: the jobs that `settle_calls` wants to stay."""
        self._orphans: tuple[set[tuple[JobId, BlobDigest]], set[BlobDigest]] = (set(), set())
        self._histories: set[str] = set()
        self._pages = OrphanedPages(store.backend)
        self._rounds = Rounds(store.backend, env.clock)
        self.settle_calls: Callable[[Iterable[JobHead]], Awaitable[set[str]]] = _settles_nothing
        """Records what the jobs were to others, before their results go; returns the jobs that have to stay for now."""
        self._audit_over_ms = 0
        """When the retention of the oldest record of the audit is over, as far as known."""

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in that a job may have ended."""
        if head is not None and job_id not in self._awaited:
            self._look_later(job_id, 0)
        if head is None or not head.is_active:
            for step in self._store.heads.steps_of(job_id):  # they wait for their script's end
                if step not in self._awaited:
                    self._look_later(step, 0)

    def _look_later(self, job_id: JobId, at_least_ms: int) -> None:
        head = self._store.heads.get(job_id)
        # A job that only a newer version can read is left to newer schedulers.
        if head is not None and not self._is_kept(head) and not self._store.heads.is_newer(job_id):
            self._awaited.add(job_id)
            heapq.heappush(self._due, (max(at_least_ms, self._over_ms(head)), job_id))

    def _is_kept(self, head: JobHead) -> bool:
        """Return whether the job goes on, or is a step of a script that does: the two are kept for as long.

        Of a job whose session caches rows that it has made, nothing but these is left in the end.
        """
        script = self._script(head)
        has_rows = bool(head.caches) and not head.has_result
        return head.is_active or has_rows or (script is not None and script.is_active)

    def _script(self, head: JobHead) -> JobHead | None:
        script_id = script_of(head.job_id)
        return None if script_id is None else self._store.heads.get(script_id)

    def _ended_ms(self, head: JobHead) -> int | None:
        """Return when the job ended, or the script of which it is a step; None: nobody knows."""
        script = self._script(head)
        return head.ended_ms if script is None or script.ended_ms is None else script.ended_ms

    def _over_ms(self, head: JobHead) -> int:
        """Return when the next of the job's retentions ends."""
        ended_ms = self._ended_ms(head)
        if ended_ms is None:
            return 0
        settings = self._env.settings
        if self._is_kept_for_none(head):
            return ended_ms
        retention_s = settings.result_retention_s if head.has_result else settings.record_retention_s
        if head.has_history:
            retention_s = min(retention_s, settings.history_retention_s)
        return ended_ms + 1000 * retention_s

    def _is_kept_for_none(self, head: JobHead) -> bool:
        """Return whether outputs are kept that nobody will take: those of a script's steps are for its other steps."""
        return bool(head.reusable) and head.reuse != "cluster" and not head.caches

    def _is_over(self, head: JobHead, retention_s: int, now_ms: int) -> bool:
        ended_ms = self._ended_ms(head)
        return ended_ms is not None and now_ms >= ended_ms + 1000 * retention_s

    def _is_due(self, head: JobHead, now_ms: int) -> bool:
        """Return whether a retention is over and it is this scheduler's turn."""
        waited_ms = now_ms - self._over_ms(head)
        return waited_ms >= 0 and self._view.precedence.has_come(
            head.job_id, waited_ms, 2 * self._env.settings.sweep_interval_ms
        )

    async def sweep(self) -> None:
        """Remove results, and later records, whose time is over.

        It works in portions, so that other tasks get their turns, and no longer than the interval between sweeps.
        """
        now_ms = self._env.clock.now_ms()
        until_s = self._env.clock.monotonic_s() + self._env.settings.sweep_interval_ms / 1000
        if self._view.executors.is_space_short:
            await self._store.heads.put([head.withdrawn() for head in self._store.heads if head.reusable])
        while self._env.clock.monotonic_s() <= until_s and (due := self._take_due(now_ms)):
            self._unsettled.clear()
            batches = [due[n : n + _REMOVED_AT_ONCE] for n in range(0, len(due), _REMOVED_AT_ONCE)]
            await asyncio.gather(*(self._work_off(batch, now_ms) for batch in batches))
            for job_id in due:
                if job_id in self._unsettled:
                    self._look_later(job_id, now_ms + _UNSETTLED_MS)
                elif job_id not in self._awaited:
                    # The record's time is not over, files have to go first, or another scheduler changed it in between.
                    self._look_later(job_id, now_ms + 1)
            await asyncio.sleep(0)

    def _take_due(self, now_ms: int) -> list[JobId]:
        due: list[JobId] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < _BATCHES_AT_ONCE * _REMOVED_AT_ONCE:
            _, job_id = heapq.heappop(self._due)
            self._awaited.discard(job_id)
            due.append(job_id)
        return due

    async def _work_off(self, job_ids: Sequence[JobId], now_ms: int) -> None:
        known = [head for job_id in job_ids if (head := self._store.heads.get(job_id)) is not None]
        heads = [head for head in known if not self._is_kept(head)]
        due = [head for head in heads if self._is_due(head, now_ms)]
        dated = [head.model_copy(update={"ended_ms": now_ms}) for head in due if head.ended_ms is None]
        settings = self._env.settings
        withdrawn = [head.withdrawn() for head in due if self._is_kept_for_none(head)]
        expired = [head for head in due if head.has_result and self._is_over(head, settings.result_retention_s, now_ms)]
        over = [
            head
            for head in due
            if not head.has_result
            and head.clean_up == "none"
            and self._script(head) is None  # a step goes after its script
            and self._is_over(head, settings.record_retention_s, now_ms)
        ]
        past = [head for head in due if head.has_history and self._is_over(head, settings.history_retention_s, now_ms)]
        past = [head for head in past if head not in over and head not in expired]
        try:
            if dated:  # their records are damaged, and may not say when they ended: count from now
                await self._store.heads.put(dated)
            if withdrawn:
                await self._store.heads.put(withdrawn)
            unsettled = await self.settle_calls(expired)
            self._unsettled.update(JobId(job_id) for job_id in unsettled)
            if expired := [head for head in expired if head.job_id not in unsettled]:
                await self._expire(expired)
            if past:
                await self._forget_history(await self._archived(past))
            if over:
                await self._remove(await self._archived(over))
        except OnagerError as error:
            log.warning("jobs_not_removed", jobs=len(due), error=str(error))

    async def _expire(self, heads: Iterable[JobHead]) -> None:
        """Remove jobs' results: in the store now, in the exchange by an executor."""
        expired: list[JobHead] = []
        for head in heads:
            # Cached rows stay until their session does not cache them any more.
            was_done = head.clean_up == "none" and head.state is not JobState.SUCCESSFUL and not head.reusable
            clean_up = "none" if was_done and head.broken is None else "all"
            expired.append(head.model_copy(update={"has_result": False, "clean_up": clean_up, "reusable": head.caches}))
        await self._store.heads.put(expired, beside=lambda head: [DeleteRange(Keyspace.Results, f"{head.job_id}/")])

    async def _archived(self, heads: list[JobHead]) -> list[JobHead]:
        """Return the jobs whose histories need not be in the store any more."""
        if self._archive is None:
            return heads
        archived: list[JobHead] = []
        for head in heads:
            try:
                if head.has_history:
                    await self._archive.write(head)
            except (DiskError, StateCorruptError) as error:
                log.error("history_not_archived", job_id=head.job_id, error=str(error))  # noqa: TRY400
                if isinstance(error, DiskError) and error.hangs:
                    break  # each of the others would wait as long
            else:
                archived.append(head)
        return archived

    async def _forget_history(self, heads: Sequence[JobHead]) -> None:
        """Remove what happened to jobs that stay known."""
        forgotten = [head.model_copy(update={"has_history": False}) for head in heads]
        await self._store.heads.put(forgotten, beside=lambda head: [DeleteRange(Keyspace.History, f"{head.job_id}/")])

    async def _remove(self, heads: Sequence[JobHead]) -> None:
        """Remove everything that the store holds of ended jobs."""
        named = await self._store.jobs.as_stored([JobId(head.job_id) for head in heads], blobs_of)
        await self._store.blobs.release_all(
            (job_id, digest) for job_id, found in named.items() for digest in found or ()
        )
        readable = [head for head in heads if head.job_id in named]
        if not await self._remove_records(readable) and len(readable) > 1:
            for head in readable:
                await self._remove_records([head])

    async def _remove_records(self, heads: Sequence[JobHead]) -> bool:
        ops: list[Op] = []
        expect: dict[tuple[Keyspace, str], int] = {}
        broken = [(Keyspace.ActiveJobs, head.job_id) for head in heads if head.broken is not None]
        found = (await self._store.backend.read_txn(broken)).values if broken else {}
        for head in heads:
            active = found.get((Keyspace.ActiveJobs, head.job_id))
            expect[Keyspace.ActiveJobs, head.job_id] = ABSENT if active is None else active.mod_revision
            ops += [Delete(keyspace, head.job_id) for keyspace in (*HEADER_KEYSPACES, Keyspace.JobHeads)]
            ops += [DeleteRange(keyspace, f"{head.job_id}/") for keyspace in _PARTS]
        result = await self._store.backend.put_txn(ops, expect=expect)
        if not isinstance(result, Committed):
            return False
        for head in heads:
            self._store.jobs.forget(JobId(head.job_id))
            self._store.heads.removed(JobId(head.job_id), result.revision)
            log.info("job_removed", job_id=head.job_id)
        return True

    async def sweep_audit(self) -> None:
        """Remove records of the audit whose time is over, in portions; new ones are younger than those seen."""
        retention_ms = 1000 * self._env.settings.audit_retention_s
        until_s = self._env.clock.monotonic_s() + self._env.settings.sweep_interval_ms / 1000
        now_ms = self._env.clock.now_ms()
        waited_ms = now_ms - self._audit_over_ms
        moment_ms = 2 * self._env.settings.sweep_interval_ms
        if waited_ms < 0 or not self._view.precedence.has_come("audit", waited_ms, moment_ms):
            return
        try:
            while self._env.clock.monotonic_s() <= until_s:
                page = await self._store.backend.scan_keys(Keyspace.Audit, limit=MAX_TXN_OPS)
                over = [key for key in page if audit.key_ms(key) + retention_ms <= now_ms]
                if len(over) < len(page) or not over:
                    oldest_ms = next((audit.key_ms(key) for key in page if key not in over), now_ms)
                    self._audit_over_ms = oldest_ms + retention_ms
                if not over:
                    return
                await self._store.backend.put_all(Delete(Keyspace.Audit, key) for key in over)
                await asyncio.sleep(0)
        except OnagerError as error:
            log.warning("audit_not_removed", error=str(error))

    async def limit_audit(self) -> None:
        """Remove the oldest records of everyday acts beyond their limit."""
        is_due = self._rounds.has_begun("audit notes", timing.AUDIT_COUNTED_S)
        if not is_due or not await self._rounds.claim("audit notes", timing.AUDIT_COUNTED_S):
            return
        pages = each_page(self._store.backend.scan_keys, Keyspace.Audit)
        keys = [key async for page in pages for key in page if is_note(key)]
        too_many = keys[: max(0, len(keys) - self._env.settings.audit_max_notes)]
        await self._store.backend.put_all(Delete(Keyspace.Audit, key) for key in too_many)

    async def collect_orphans(self) -> int:
        """Remove blobs, and pages of the catalog, that are unreferenced now and were a while ago; return how many.

        Those are references of jobs that do not exist, and blobs without references. A job's blobs may be stored before
        the job itself, so one look is no proof.
        """
        is_due = self._rounds.has_begun("orphans", timing.ORPHAN_AGE_S)
        if not is_due or not await self._rounds.claim("orphans", timing.ORPHAN_AGE_S):
            return 0
        references, unnamed = await self._store.blobs.orphans(lambda job_id: self._store.heads.get(job_id) is not None)
        gone, left = references & self._orphans[0], unnamed & self._orphans[1]
        await self._store.blobs.release_all(gone)
        await self._store.blobs.collect(left)
        self._orphans = (references - gone, unnamed - left)
        histories = await self._histories_without_a_job()
        for job_id in histories & self._histories:
            await self._store.backend.delete_range(Keyspace.History, f"{job_id}/")
        self._histories = histories - self._histories
        return len(gone) + len(left) + await self._pages.collect()

    async def _histories_without_a_job(self) -> set[str]:
        """Return the jobs that are gone but for their histories."""
        pages = each_page(self._store.backend.scan_keys, Keyspace.History)
        jobs = {key.partition("/")[0] async for page in pages for key in page}
        return {job_id for job_id in jobs if self._store.heads.get(JobId(job_id)) is None}
