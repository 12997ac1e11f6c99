"""Rows of what programs cache: outputs that jobs keep for other jobs of their session, until it does not cache them.

A job that has made such rows offers them in its head, like any output that may be reused. What nobody caches any more,
what is stale, and what two jobs have made at once, is withdrawn here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import structlog

from onager.caches import cache_of
from onager.errors import OnagerError
from onager.ids import JobId
from onager.scheduler.jobs.job_heads import JobHead, JobHeads

log = structlog.get_logger(__name__)

GRACE_MS: Final = 600_000
"""How far the clocks of schedulers may be apart for new rows not to be taken for unknown ones."""


class Caches:
    """The cached rows that jobs offer, by the heads as last seen."""

    def __init__(self, heads: JobHeads) -> None:
        self._heads = heads
        self._offering: dict[JobId, JobHead] = {}

    def on_head(self, job_id: JobId, head: JobHead | None) -> None:
        """Take in what a job offers."""
        if head is not None and head.reusable and head.caches and head.broken is None:
            self._offering[job_id] = head
        else:
            self._offering.pop(job_id, None)

    async def drop(self, cache_ids: Collection[str]) -> None:
        """Withdraw the rows of *cache_ids*: their sessions cache them no more. What cannot be written, a sweep does."""
        wanted = set(cache_ids)
        await self._withdraw(
            (head, {fingerprint for fingerprint in head.caches if cache_of(fingerprint) in wanted})
            for head in list(self._offering.values())
        )

    async def keep(self, kept: Collection[str], looked_ms: int) -> None:
        """Withdraw the rows of what no session caches: *kept* is what one did at *looked_ms*."""
        await self._withdraw(
            (head, {fingerprint for fingerprint in head.caches if cache_of(fingerprint) not in kept})
            for head in list(self._offering.values())
            if head.submitted_ms < looked_ms - GRACE_MS
        )

    async def tidy(self) -> None:
        """Withdraw all rows of each cache but those of the job that was submitted last: it has seen the latest files.

        Of equal ones, those count that were there first.
        """
        found: dict[str, list[tuple[str, JobHead]]] = {}
        for head in self._offering.values():
            for fingerprint in head.caches:
                found.setdefault(cache_of(fingerprint), []).append((fingerprint, head))
        gone: dict[str, set[str]] = {}
        for offers in found.values():
            latest, _ = max(offers, key=lambda each: (each[1].submitted_ms, each[1].job_id))
            first = min((head for fingerprint, head in offers if fingerprint == latest), key=made_first)
            for fingerprint, head in offers:
                if (fingerprint, head.job_id) != (latest, first.job_id):
                    gone.setdefault(head.job_id, set()).add(fingerprint)
        offering: Mapping[str, JobHead] = {head.job_id: head for head in self._offering.values()}
        await self._withdraw((offering[job_id], fingerprints) for job_id, fingerprints in gone.items())

    async def _withdraw(self, offers: Iterable[tuple[JobHead, set[str]]]) -> None:
        withdrawn = [head.withdrawn(fingerprints) for head, fingerprints in offers if fingerprints]
        try:
            await self._heads.put(withdrawn)
        except OnagerError as error:
            log.warning("cached_rows_not_withdrawn", jobs=len(withdrawn), error=str(error))
        else:
            for head in withdrawn:
                log.info("cached_rows_withdrawn", job_id=head.job_id)


def made_first(head: JobHead) -> tuple[int, str]:
    """Return what orders jobs that have made equal rows: those of the first one count."""
    return head.ended_ms or 0, head.job_id
