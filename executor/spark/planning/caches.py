"""What a program caches, while a job of its session is planned.

Spark's own cache manager says which parts of the query are scans of cached rows. The plan of these rows is cut into
stages of its own. Its last stage keeps partitions and order, and its fingerprint is that of the cache: the job takes
the rows where another one of the session has made them, and makes them otherwise. So that they are made of the same
partitions in each job, they are planned under what the session had set when it cached them, and for as many slots.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import JavaObject, Jvm
from onager.executor.spark.kernel.access import kept_as
from onager.executor.spark.kernel.caches import JavaCaches
from onager.executor.spark.kernel.queries import QueryTools
from onager.executor.spark.planning.boundaries import Boundary
from onager.executor.spark.planning.cut_stages import CutStage, CutTerms
from onager.executor.spark.planning.cutter import Cutter
from onager.executor.spark.planning.fingerprints import cached_fingerprint
from onager.executor.spark.planning.job_session import changed_settings, planned_settings
from onager.executor.spark.planning.sizing import CUT_SETTINGS, setting_bytes, sizes
from onager.executor.spark.stage_plan import ExchangeInput, MetricsWanted, SingleOutput
from onager.job_settings import PREFIX, SORT_PARALLEL_FROM_BYTES

_NOT_CLONED: Final = {"spark.sql.sources.bucketing.autoBucketedScan.enabled": "false"}
"""Else Spark plans what it caches in a clone of the session."""


@dataclass(frozen=True, slots=True)
class Cached:
    """A cached DataFrame."""

    cache_id: str
    conf: Mapping[str, str]
    """What its session had set then."""
    slots: int
    """How many slots the cluster had then."""


class NotKeptError(Exception):
    """What is cached is made of something of which nobody knows when it changes."""

    def __init__(self, cache_id: str) -> None:
        super().__init__(cache_id)
        self.cache_id = cache_id


class Caches:
    """What a session caches."""

    def __init__(self, session: SparkSession, conf: Mapping[str, str]) -> None:
        """Make it in *session*, which is nobody else's, and has *conf* set."""
        self._session = session
        self._conf = conf
        self._cached: dict[str, Cached] = {}

    @cached_property
    def _java(self) -> JavaCaches:
        """Java's part, which most sessions do not need."""
        return JavaCaches(self._session)

    def __bool__(self) -> bool:
        """Return whether anything is cached."""
        return bool(self._cached)

    def add(self, cached: Cached, frame: JavaObject, level: bytes, table: str) -> bool:
        """Add the dataset *frame*, unless it is cached; return whether it was added. *table*: "" for a DataFrame."""
        if is_new := self._java.add(cached.cache_id, frame, level, table):
            self._cached[cached.cache_id] = cached
        return is_new

    def of(self, frame: JavaObject, *, cascades: bool) -> list[str]:
        """Return what caches the dataset *frame*; if it *cascades*, also what is made of it."""
        return self._java.of(frame, cascades=cascades)

    def read_by(self, query: JavaObject) -> list[str]:
        """Return what the dataset *query* reads, directly or through others."""
        return self._java.read_by(query) if self else []

    def show(self, query: JavaObject | None = None) -> None:
        """Have Spark read as cached what *query* reads, as it would plan that itself; None: whatever is cached."""
        for cache_id in self._cached if query is None else self.read_by(query):
            with changed_settings(self._session, planned_settings(self._session), self._settings(cache_id)):
                self._java.cache(cache_id)

    @contextmanager
    def planned(self, cache_ids: Sequence[str], metrics: MetricsWanted) -> Iterator["CachedPlans"]:
        """Have Spark read *cache_ids* as cached within the context, and yield how their rows are made."""
        try:
            yield CachedPlans(self._session, metrics, [self._planned(cache_id) for cache_id in cache_ids])
        finally:
            self._java.release()

    def _planned(self, cache_id: str) -> "_Planned":
        cached, session = self._cached[cache_id], self._session
        settings = self._settings(cache_id) | CUT_SETTINGS
        with changed_settings(session, planned_settings(session), settings):
            own = planned_settings(session)
            needed = QueryTools(Jvm.of(session)).needed_bytes(self._java.frame(cache_id))
            sized = sizes(cached.conf, own, needed, cached.slots)
            with changed_settings(session, own, sized):
                return _Planned(cached, self._java.cache(cache_id), settings | sized)

    def _settings(self, cache_id: str) -> dict[str, str | None]:
        """Return what is to be set, or not to be set (None), for the session to be as it was then."""
        before, now = self._cached[cache_id].conf, self._conf
        changed = {key for key in {*before, *now} if before.get(key) != now.get(key) and not key.startswith(PREFIX)}
        return {kept_as(self._session, key): before.get(key) for key in sorted(changed)} | _NOT_CLONED


@dataclass(frozen=True, slots=True)
class _Planned:
    """A cached DataFrame with its physical plan, and the settings under which Spark has planned it."""

    cached: Cached
    plan: JavaObject
    settings: Mapping[str, str | None]


class CachedPlans:
    """The stages that give cached rows, cut where a plan first reads them."""

    def __init__(self, session: SparkSession, metrics: MetricsWanted, planned: Sequence[_Planned]) -> None:
        self._session = session
        self._metrics = metrics
        self._planned = {int(each.plan.id()): each for each in planned}
        self._begun: dict[int, Boundary] = {}
        self._fingerprints: dict[int, str] = {}
        """By stage."""

    def cut(self, plan_id: int, first_stage_id: int) -> tuple[Boundary, Sequence[CutStage]]:
        """Return where the rows of the cached plan *plan_id* come from; at first with its stages, from that id on.

        `NotKeptError` if it cannot be known when they are stale; `UnsupportedPlanError` if it cannot be cut.
        """
        if plan_id in self._begun:
            return self._begun[plan_id], ()
        planned = self._planned[plan_id]
        with changed_settings(self._session, planned_settings(self._session), planned.settings):
            stages = self._cut(planned, first_stage_id)
        last = stages[-1]
        read = sum(stage.input_bytes for stage in stages)
        self._fingerprints[last.stage_id] = last.fingerprint
        self._begun[plan_id] = Boundary(last.stage_id, last.plan.partitions, is_sorted=False, input_bytes=read)
        return self._begun[plan_id], stages

    def _cut(self, planned: _Planned, first_stage_id: int) -> list[CutStage]:
        cached, session = planned.cached, self._session
        terms = CutTerms((), setting_bytes(cached.conf, SORT_PARALLEL_FROM_BYTES), self._metrics)
        with tempfile.TemporaryDirectory(prefix="onager-plan-") as scratch:
            cutter = Cutter(
                session,
                planned.plan,
                terms,
                planned_settings(session),
                Path(scratch),
                first_stage_id=first_stage_id,
                digests="CACHED",
                caches=self,
            )
            *stages, last = cutter.cut(SingleOutput()).stages
        inputs = [leaf.digest for leaf in cutter.read]
        if not all(inputs):
            raise NotKeptError(cached.cache_id)
        inputs += [
            self._fingerprints[source.stage_id]
            for stage in (*stages, last)
            for source in stage.plan.inputs
            if isinstance(source, ExchangeInput) and source.by_producer
        ]
        fingerprint = cached_fingerprint(cached.cache_id, inputs, last.plan.partitions)
        last = replace(last, name=f"{last.name} → cache", fingerprint=fingerprint)
        return [
            *stages,
            replace(last, may_fuse=False, may_merge=False, may_split=frozenset()),
        ]  # it keeps its partitions
