"""Metrics of the exchange directory, and of jobs that asked for streaming."""

import urllib.request
from types import SimpleNamespace

from onager.protocol import onager_pb2 as pb
from onager.scheduler.metrics import CallMetrics, ExchangeMetrics, PipelineMetrics, serving_metrics
from tests.support.processes.children import free_port


def test_figures_of_executors_and_of_jobs_that_were_to_stream():
    seen = pb.ExchangeUse(bytes=7, files=2, free_bytes=9, total_bytes=10, looked_ms=1)
    sessions = [SimpleNamespace(executor_id="e1", exchange=seen), SimpleNamespace(executor_id="e2", exchange=None)]
    listen = f"127.0.0.1:{free_port()}"
    with serving_metrics(listen) as registry:
        registry.register(ExchangeMetrics(lambda: sessions))
        registry.register(PipelineMetrics(lambda: 3))
        calls = CallMetrics(registry)
        calls.answered(0.02)
        calls.failed()
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=10) as answer:
            told = answer.read().decode()
    assert 'onager_exchange_bytes{executor_id="e1"} 7.0' in told
    assert 'onager_exchange_files{executor_id="e1"} 2.0' in told
    assert 'onager_exchange_free_bytes{executor_id="e1"} 9.0' in told
    assert "e2" not in told
    assert "onager_pipelines_abandoned_total 3.0" in told
    assert 'onager_executor_call_seconds_bucket{le="0.025"} 1.0' in told
    assert 'onager_executor_call_seconds_bucket{le="0.01"} 0.0' in told
    assert "onager_executor_call_failures_total 1.0" in told
