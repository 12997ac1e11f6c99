"""Metrics of the process, of calls, and what is served."""

import asyncio
import datetime as dt
import re
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.records import Loss
from onager.scheduler.metrics import observe, process_registry, serving_metrics
from onager.scheduler.metrics.catalog import JOB_DURATION, METRICS
from onager.scheduler.metrics.executors import CallMetrics, LossMetrics
from onager.scheduler.metrics.process import LAG_LOOK_S, EventLoopLag, expiry_of
from onager.scheduler.metrics.tallies import Distribution
from onager.state_backend.observed import StateMetrics
from tests.support.etcd.certificates import Authority
from tests.support.metrics import counted, fetched, of_registry
from tests.support.processes.children import free_port
from tests.support.waiting import eventually
from tests.unit.scheduler.pair import HERE, Pair, job_of
from tests.unit.scheduler.small_graphs import session_of


def test_the_catalog_has_each_name_once_and_no_label_that_has_no_bound():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"onager_[a-z_]+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert not {"job_id", "session", "principal", "name"} & set(metric.labels)


async def test_all_that_is_declared_is_served_and_nothing_else(clock):
    pair = Pair(clock)
    registry = CollectorRegistry()
    StateMetrics(registry)
    observe(pair.here, registry, clock, {"missing": 2})
    await pair.start()
    await pair.run_job(job_of(HERE), tasks=3)
    declared = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    served = {family.name: family for family in registry.collect()}
    assert served.keys() == declared.keys()
    for name, family in served.items():
        assert (family.type, family.documentation) == (declared[name].kind, declared[name].about)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(declared[name].labels)
    metrics = of_registry(registry)
    assert metrics['onager_auth_refusals_total{reason="missing"}'] == 2
    for scheduler in pair.schedulers.values():
        await scheduler.close()


async def test_what_one_scheduler_tells_of_the_cluster_the_other_tells_too(clock):
    pair = Pair(clock)
    registries = {scheduler_id: CollectorRegistry() for scheduler_id in pair.schedulers}
    for scheduler_id, scheduler in pair.schedulers.items():
        observe(scheduler, registries[scheduler_id], clock, {})
    await pair.start()
    await pair.run_job(job_of(HERE), tasks=3)
    pair.there.loads.take_loads(pair.here.loads.changed_since(0)[0])  # as the loop that does not run here would do
    whole = {metric.name for metric in METRICS if metric.whose == "cluster"}
    here, there = (
        {name: value for name, value in of_registry(registry).items() if name.partition("{")[0] in whole}
        for registry in registries.values()
    )
    assert here == there
    assert here['onager_jobs{state="running"}'] == 1
    assert here['onager_tasks{state="available"}'] == here["onager_slots_wanted"] == 3
    assert here["onager_schedulers"] == 2
    for scheduler in pair.schedulers.values():
        await scheduler.close()


async def test_executors_and_what_they_see_of_the_exchange(clock):
    pair = Pair(clock)
    registry = CollectorRegistry()
    observe(pair.here, registry, clock, {})
    executors = pair.here.executors
    for executor_id, state in (("e1", "alive"), ("e2", "alive"), ("e3", "draining"), ("e4", "lost")):
        session = session_of(executor_id, state)
        executors.registry.seen(session.record, 7)
        executors._sessions[session.executor_id] = session
    executors.session("e1").exchange = pb.ExchangeUse(bytes=7, files=2, free_bytes=9, total_bytes=90, looked_ms=1)
    metrics = of_registry(registry)
    assert counted(metrics, "onager_executors") == {
        'onager_executors{mode="pull",state="alive"}': 2,
        'onager_executors{mode="pull",state="draining"}': 1,
        'onager_executors{mode="pull",state="lost"}': 1,
    }
    assert counted(metrics, "onager_executor_slots") == {
        'onager_executor_slots{state="free"}': 8,
        'onager_executor_slots{state="closed"}': 4,
    }
    assert counted(metrics, "onager_exchange_") == {
        'onager_exchange_bytes{executor_id="e1"}': 7,
        'onager_exchange_files{executor_id="e1"}': 2,
        'onager_exchange_free_bytes{executor_id="e1"}': 9,
        'onager_exchange_space_bytes{executor_id="e1"}': 90,
    }


def test_figures_are_served_over_http():
    port = free_port()
    registry = process_registry()
    with serving_metrics(f"127.0.0.1:{port}", registry):
        calls, losses = CallMetrics(registry), LossMetrics(registry)
        calls.answered(0.02)
        calls.failed()
        losses.lost(Loss.LEASE)
        metrics = fetched(port)
    assert metrics['onager_executor_call_seconds_bucket{le="0.025"}'] == 1
    assert metrics['onager_executor_call_seconds_bucket{le="0.01"}'] == 0
    assert metrics["onager_executor_call_failures_total"] == 1
    assert metrics['onager_executor_lost_total{reason="lease"}'] == 1
    assert metrics["process_resident_memory_bytes"] > 0


def test_a_distribution_counts_a_bound_in_its_own_bucket_and_no_time_before_0():
    registry = CollectorRegistry()
    distribution = Distribution(JOB_DURATION)
    registry.register(distribution)
    for value in (-3.0, 0.05, 0.06, 1e6):
        distribution.observe(value)
    metrics = of_registry(registry)
    counts = [metrics[f'onager_job_duration_seconds_bucket{{le="{bound}"}}'] for bound in (0.05, 0.1, 3600.0, "+Inf")]
    assert counts == [2, 3, 3, 4]
    assert metrics["onager_job_duration_seconds_sum"] == pytest.approx(1e6 + 0.11)


async def test_a_blocked_event_loop_shows():
    registry = CollectorRegistry()
    times = iter([0.0, LAG_LOOK_S + 0.2, 1.0, 1.0 + LAG_LOOK_S, 2.0])
    done = SimpleNamespace(is_so=False)

    def now_s():
        try:
            return next(times)
        except StopIteration:
            done.is_so = True
            return 3.0

    lag = asyncio.create_task(EventLoopLag(registry, SimpleNamespace(monotonic_s=now_s)).run())
    await eventually(lambda: done.is_so)
    lag.cancel()
    metrics = of_registry(registry)
    assert metrics['onager_event_loop_lag_seconds_bucket{le="0.1"}'] == 1
    assert metrics['onager_event_loop_lag_seconds_bucket{le="0.25"}'] == 2


async def test_a_lease_that_is_not_renewed_runs_out(clock):
    pair = Pair(clock)
    registry = CollectorRegistry()
    observe(pair.here, registry, clock, {})
    assert "onager_lease_remaining_seconds" not in of_registry(registry)  # it has just started: no reason for an alert
    pair.here.schedulers.lease = SimpleNamespace(is_lost=False, until_s=clock.monotonic_s() + 4)
    assert of_registry(registry)["onager_lease_remaining_seconds"] == pytest.approx(4)
    clock.advance(3_000)
    assert of_registry(registry)["onager_lease_remaining_seconds"] == pytest.approx(1)
    pair.here.schedulers.lease = None
    assert of_registry(registry)["onager_lease_remaining_seconds"] == 0


def test_when_a_certificate_expires(tmp_path):
    authority = Authority(tmp_path)
    old = authority.issue("old", "localhost", is_expired=True)
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    assert expiry_of(old.cert) == pytest.approx(yesterday.timestamp(), abs=60)
    assert expiry_of(authority.issue("new", "localhost").cert) > yesterday.timestamp()
    assert expiry_of(tmp_path / "gone.pem") is None
    pem, half = old.cert.read_bytes(), tmp_path / "half.pem"
    for end in range(0, len(pem) - 30, 40):
        half.write_bytes(pem[:end])
        assert expiry_of(half) is None
