"""Bundles of a scheduler's parts, with only what a test needs."""

from types import SimpleNamespace

from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.engine.bundles import ClusterView, Env, Store
from onager.scheduler.jobs.blobs import BlobStore
from onager.scheduler.jobs.job_writers import JobWriters
from onager.scheduler.settings import SchedulerSettings


def env(clock, **settings):
    return Env(SchedulerSettings(**settings), clock)


def stored(backend, jobs, clock, blobs=None):
    return Store(backend, jobs, JobWriters(jobs, clock), blobs or BlobStore(backend))


def executors(*taking_work, streaming=(), may_see=lambda _: True):
    """Return executors by id, as far as they are asked which of them take work."""
    return SimpleNamespace(
        taking_work=lambda programs=False: frozenset(() if programs else taking_work),
        streaming=lambda: frozenset(streaming),
        may_see=may_see,
        is_space_short=False,
    )


def view(schedulers=None, ownership=None, found=None):
    return ClusterView(
        schedulers, ownership, None if schedulers is None else Precedence(schedulers), found or executors()
    )
