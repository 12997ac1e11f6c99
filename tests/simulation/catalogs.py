"""Jobs that change the catalog: what they change, and what must be in it after each commit.

Each such job adds its name to a table's record, which it puts as a whole (so two at once conflict), adds a partition of
its name to another table (so all of them win), or both. After every commit, the catalog has the names of exactly those
jobs that have succeeded.
"""

import json
import random  # noqa: TID251 seeded
from collections.abc import Callable, Iterable
from typing import Any

from onager.catalog_records import folded, page_key, read_page
from onager.execution_graph import ExecutionGraph, JobState
from onager.manifests import Place, TablePlaces
from onager.protocol import onager_pb2 as pb
from onager.state_backend import EventKind, Keyspace, Put
from onager.state_backend.local import Group

_OFTEN = 12
_OF_THEM = 8
_COUNTED, _APPENDED = "tables/default/counted", "tables/default/appended"
_IDS = {_COUNTED: "0" * 15 + "1", _APPENDED: "0" * 15 + "2"}
_WHERE = "file:/warehouse/appended"
CONFLICT = "was changed by another job while this one ran"

Seen = dict[str, tuple[bytes, int]]
"""Records by key, each with its revision, at one revision."""


def has_catalog(seed: int) -> bool:
    """Return whether jobs of the world with *seed* change the catalog: in some, and the others are as they were."""
    return seed % _OFTEN == _OF_THEM


class Catalog:
    """The catalog as the store has it, followed commit by commit."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.is_on = False
        self.records: Seen = {}
        self._ended: dict[str, ExecutionGraph] = {}

    @staticmethod
    def begin() -> list[Put]:
        """Return the writes of two tables."""
        return [
            Put(
                Keyspace.Catalog,
                key,
                json.dumps(
                    {"kind": "table", "version": 1, "id": i, "spark": {"storage": {"location": _WHERE}, "jobs": []}}
                ).encode(),
            )
            for key, i in _IDS.items()
        ]

    # ---------------------------------------------------------------- what jobs do

    def change(self, catalog: pb.CatalogChanges, job_id: str, seen: Seen, *, writes_rows: bool) -> None:
        """Put into *catalog* what the job changes, planned on what was *seen*; of rows, the partition comes later."""
        does = random.Random(f"catalog {job_id}").choice(("append", "append", "count", "both", "both", "nothing"))
        if does in ("count", "both"):
            value, revision = seen[_COUNTED]
            record = json.loads(value)
            record["spark"]["jobs"].append(job_id)
            catalog.puts.add(key=_COUNTED, value=json.dumps(record).encode(), expected_revision=revision)
        if does in ("append", "both"):
            change = catalog.partitions.add(key=_APPENDED, table_id=_IDS[_APPENDED], location=_WHERE)
            if writes_rows:
                change.template = json.dumps({"storage": {}})
            else:
                change.set[f"job={job_id}"] = json.dumps({"spec": {"job": job_id}})
                change.expected[f"job={job_id}"] = ""

    @staticmethod
    def written(catalog: pb.CatalogChanges, job_id: str) -> TablePlaces | None:
        """Return where the rows of a job that changes *catalog* are, if they are a table's."""
        if not any(change.template for change in catalog.partitions):
            return None
        path = f"job={job_id}"
        return TablePlaces(_APPENDED, "nothing", "", {path: Place(f"{_WHERE}/{path}")})

    # ---------------------------------------------------------------- what must hold

    def deliver(self, group: Group, ended: Iterable[tuple[str, ExecutionGraph]]) -> None:
        """Take in a commit, after which the jobs in *ended* have ended."""
        is_touched = False
        for event in group.events:
            if event.keyspace is Keyspace.Catalog:
                is_touched = True
                self.records.pop(event.key, None)
                if event.kind is EventKind.PUT:
                    self.records[event.key] = (event.value, event.mod_revision)
        for job_id, graph in ended:
            is_touched = is_touched or job_id not in self._ended
            self._ended[job_id] = graph
        if self.is_on and is_touched and _COUNTED in self.records:
            self._check()

    def _check(self) -> None:
        counted, appended = self._counted(), sorted(self._appended())
        for job_id in {*counted, *appended}:
            graph = self._ended.get(job_id)
            if graph is None or graph.state is not JobState.SUCCESSFUL:
                self._fail(f"the catalog has a change of {job_id}, which has not succeeded")
        if len(set(counted)) < len(counted):
            self._fail(f"the catalog has a change twice: {counted}")
        for job_id, graph in self._ended.items():
            if graph.state is not JobState.SUCCESSFUL or graph.plan is None or not graph.plan.catalog_digest:
                continue
            planned = pb.CatalogChanges()
            self.change(planned, job_id, self.records, writes_rows=graph.plan.sink is not None)
            if planned.puts and job_id not in counted:
                self._fail(f"{job_id} has succeeded, and its change of a table is not there")
            if planned.partitions and job_id not in appended:
                self._fail(f"{job_id} has succeeded, and its partition is not there")

    def _counted(self) -> list[str]:
        jobs: list[str] = json.loads(self.records[_COUNTED][0])["spark"]["jobs"]
        return jobs

    def _appended(self) -> list[str]:
        pages = []
        for page_id in self._pages():
            found = self.records.get(page_key(_IDS[_APPENDED], page_id))
            if found is None:
                self._fail(f"a table names page {page_id}, which is not there")
                continue
            pages.append(read_page(page_id, found[0], page_id))
        return [str(partition["spec"]["job"]) for partition in folded(pages).values()]

    def _pages(self) -> list[str]:
        record: dict[str, Any] = json.loads(self.records[_APPENDED][0])
        pages: list[str] = record.get("pages", [])
        return pages

    def is_tidy(self) -> bool:
        """Return whether there is nothing but tables, and pages that these name."""
        named = {page_key(_IDS[_APPENDED], page_id) for page_id in self._pages()} if self.is_on else set()
        return set(self.records) - set(_IDS) - {"marks/pages"} == named

    @property
    def changes(self) -> int:
        """How many changes there are in it."""
        return len(self._counted()) + len(self._appended()) if self.is_on else 0
