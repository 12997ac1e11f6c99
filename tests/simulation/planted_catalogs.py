"""Bugs in commits of the catalog; see `planted`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from onager.scheduler.catalog.committing import CatalogCommits, CatalogWrites
from onager.scheduler.jobs.job_store import JobStore

_settle = JobStore._settle
_prepare = CatalogCommits.prepare


def _catalog_changes_before_the_end() -> AbstractContextManager[Any]:
    """What a job changes in the catalog is written by a transaction of its own, before the one that ends the job."""

    async def settle(self: JobStore, ops: Any, expect: Any, changes: Any = None) -> Any:
        if changes is not None:
            writes = await self._catalog.prepare(changes)
            await self._backend.put_txn(writes.ops, expect=writes.expect)
        return await _settle(self, ops, expect)

    return mock.patch.object(JobStore, "_settle", settle)


def _catalog_changes_blindly() -> AbstractContextManager[Any]:
    """What the catalog was read as is not expected to be so when it is written."""

    async def prepare(self: CatalogCommits, changes: Any) -> CatalogWrites:
        return CatalogWrites((await _prepare(self, changes)).ops)

    return mock.patch.object(CatalogCommits, "prepare", prepare)


OF_CATALOGS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "catalog-changes-before-the-end": _catalog_changes_before_the_end,
    "catalog-changes-blindly": _catalog_changes_blindly,
}
