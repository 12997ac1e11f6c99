"""Gauges of the whole cluster: every scheduler tells them from the shared state as it last saw it.

The thread that serves metrics looks: each list is copied in one step before it is gone through.
"""

from collections import Counter
from collections.abc import Iterator

from onager.clock import Clock
from onager.execution_graph import JobState
from onager.ids import JobId
from onager.metric import Metric
from onager.scheduler.app import SchedulerApp
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.tallies import Labelled
from onager.scheduler.policy.slots_wanted import slots_wanted


def cluster_gauges(scheduler: SchedulerApp, clock: Clock) -> Iterator[tuple[Metric, Labelled]]:
    """Yield what *scheduler* knows of the cluster."""
    yield from _jobs(scheduler)
    yield from _executors(scheduler, clock.now_ms())
    yield catalog.SCHEDULERS, {(): len(scheduler.schedulers.live)}
    yield from _exchange(scheduler)


def _jobs(scheduler: SchedulerApp) -> Iterator[tuple[Metric, Labelled]]:
    heads, loads = scheduler.heads, scheduler.loads
    states = Counter(dict.fromkeys(JobState, 0))
    damaged = 0
    for head in heads.snapshot():
        if head.broken is None:
            states[head.state] += 1
        elif not heads.is_newer(JobId(head.job_id)):
            damaged += 1
    running, available = loads.tasks()
    yield catalog.JOBS, {(state.value,): count for state, count in states.items()}
    yield catalog.JOB_RECORDS_DAMAGED, {(): damaged}
    yield catalog.TASKS, {("running",): running, ("available",): available}
    yield catalog.SLOTS_WANTED, {(): slots_wanted(loads.claims())}


def _executors(scheduler: SchedulerApp, now_ms: int) -> Iterator[tuple[Metric, Labelled]]:
    executors = scheduler.executors
    states: Counter[tuple[str, ...]] = Counter()
    slots: Counter[tuple[str, ...]] = Counter({("busy",): 0, ("free",): 0, ("closed",): 0})
    for record in executors.registry.that_run(programs=False):
        states[record.state_and_reason(now_ms)[0], record.mode] += 1
        load = executors.loads.find(record)
        busy = min(record.slots, 0 if load is None else load.running)
        if record.takes_work(now_ms):
            slots["busy",] += busy
            slots["free",] += record.slots - busy
        elif record.state != "lost":
            slots["closed",] += record.slots
    yield catalog.EXECUTORS, states
    yield catalog.EXECUTOR_SLOTS, slots


def _exchange(scheduler: SchedulerApp) -> Iterator[tuple[Metric, Labelled]]:
    seen = [(s.executor_id, s.exchange) for s in scheduler.executors.sessions if s.exchange is not None]
    yield catalog.EXCHANGE_BYTES, {(executor_id,): use.bytes for executor_id, use in seen}
    yield catalog.EXCHANGE_FILES, {(executor_id,): use.files for executor_id, use in seen}
    yield catalog.EXCHANGE_FREE, {(executor_id,): use.free_bytes for executor_id, use in seen}
    yield catalog.EXCHANGE_SPACE, {(executor_id,): use.total_bytes for executor_id, use in seen}
