"""The alert rules and the dashboard: current, about metrics that exist, and firing when they should."""

import json
import re
import subprocess

import pytest

from deploy.monitoring.__main__ import FILES, HERE
from deploy.monitoring.alerts import ALERTS
from deploy.monitoring.programs import ADVICE, ROOT, find
from onager.scheduler.metrics.catalog import METRICS

SAMPLES = {sample: metric for metric in METRICS for sample in metric.samples}
BOARD = json.loads((HERE / "dashboard.json").read_text())
PLOTTED = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
EVER = "x60"
"""So many minutes more of the same."""


def promtool(*arguments):
    program = find("promtool")
    assert program, f"this test needs promtool: {ADVICE}"
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_current(name):
    assert (HERE / name).read_text() == FILES[name](), "python -m deploy.monitoring writes it anew"


@pytest.mark.parametrize("expr", [alert.expr for alert in ALERTS] + PLOTTED)
def test_an_expression_names_only_metrics_and_labels_that_exist(expr):
    selectors = re.findall(r"(onager_\w+)(?:\{([^}]*)\})?", expr)
    assert selectors
    for name, matchers in selectors:
        assert name in SAMPLES
        labels = {*SAMPLES[name].labels, "job", "instance", "le"}
        assert set(re.findall(r"(\w+)\s*[=!]~?\"", matchers)) <= labels
    known = {label for name, _ in selectors for label in SAMPLES[name].labels} | {"job", "instance", "le"}
    assert {label.strip() for found in re.findall(r"by \(([^)]*)\)", expr) for label in found.split(",")} <= known


def test_every_metric_is_on_the_dashboard():
    plotted = {name for expr in PLOTTED for name in re.findall(r"onager_\w+", expr)}
    assert all(plotted & set(metric.samples) for metric in METRICS)


def test_every_alert_has_a_section_in_the_runbook():
    text = (ROOT / "docs" / "operations.md").read_text()
    for alert in ALERTS:
        assert f"### {alert.name}\n" in text


def test_promtool_accepts_the_configuration_and_its_rules():
    promtool("check", "config", HERE / "prometheus.yml")


def series(name, values, **labels):
    """Return a series of a cluster that is still to be named."""
    text = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {"series": f'{name}{{instance="scheduler-1"{text}}}', "values": values}


def steady(name, value, **labels):
    return series(name, f"{value}+0{EVER}", **labels)


def growing(name, by, **labels):
    return series(name, f"0+{by}{EVER}", **labels)


HEALTHY = [
    steady("onager_build_info", 1, version="1", python="3"),
    steady("onager_schedulers", 3),
    steady("onager_slots_wanted", 8),
    steady("onager_tasks", 4, state="available"),
    steady("onager_tasks", 4, state="running"),
    steady("onager_executor_slots", 4, state="busy"),
    steady("onager_executor_slots", 1, state="free"),
    growing("onager_jobs_ended_total", 1, state="successful", error_kind=""),
    growing("onager_jobs_ended_total", 1, state="failed", error_kind="user_error"),
    steady("onager_jobs_ended_total", 0, state="failed", error_kind="io_error"),
    steady("onager_job_records_damaged", 0),
    steady("onager_job_takeovers_total", 0, reason="gone"),
    growing("onager_event_loop_lag_seconds_bucket", 240, le="0.05"),
    growing("onager_event_loop_lag_seconds_bucket", 240, le="+Inf"),
    series("onager_lease_remaining_seconds", "4 3 4 2.7 3 4 3" + " 3" * 60),
    growing("onager_state_request_seconds_count", 9, operation="put_txn", outcome="ok"),
    steady("onager_state_request_seconds_count", 0, operation="put_txn", outcome="unavailable"),
    growing("onager_state_request_seconds_bucket", 9, operation="put_txn", outcome="ok", le="0.01"),
    growing("onager_state_request_seconds_bucket", 9, operation="put_txn", outcome="ok", le="+Inf"),
    steady("onager_exchange_free_bytes", 50, executor_id="e1"),
    steady("onager_exchange_space_bytes", 100, executor_id="e1"),
    steady("onager_executors", 2, state="alive", mode="pull"),
    growing("onager_executor_lost_total", 1, reason="left"),
    steady("onager_executor_lost_total", 0, reason="lease"),
    steady("onager_executor_call_failures_total", 0),
    steady("onager_certificate_expiry_timestamp_seconds", 10**9, use="server"),
]
NO_SLOTS = [steady("onager_executor_slots", 0, state=state) for state in ("busy", "free")]
CHANGES = {
    "OnagerLastScheduler": [series("onager_schedulers", f"3x9 1{EVER}")],
    "OnagerNoExecutor": NO_SLOTS,
    "OnagerQueueStuck": [steady("onager_tasks", 0, state="running")],
    "OnagerJobsFail": [growing("onager_jobs_ended_total", 1, state="failed", error_kind="io_error")],
    "OnagerRecordsDamaged": [steady("onager_job_records_damaged", 1)],
    "OnagerTakeovers": [
        series("onager_schedulers", " ".join(["3 2"] * 30)),
        growing("onager_job_takeovers_total", 2, reason="gone"),
    ],
    "OnagerEventLoopLag": [
        growing("onager_event_loop_lag_seconds_bucket", 20, le="0.05"),
        growing("onager_event_loop_lag_seconds_bucket", 240, le="1.0"),
    ],
    "OnagerLeaseNearlyLost": [series("onager_lease_remaining_seconds", "4x40 0.5 3x20")],
    "OnagerClocksDiffer": [steady("onager_clock_ahead_seconds", -7_200)],
    "OnagerStoreErrors": [growing("onager_state_request_seconds_count", 1, operation="put_txn", outcome="unavailable")],
    "OnagerStoreSlow": [
        growing("onager_state_request_seconds_bucket", 1, operation="put_txn", outcome="ok", le="0.01"),
        growing("onager_state_request_seconds_bucket", 9, operation="put_txn", outcome="ok", le="0.5"),
    ],
    "OnagerExchangeNearlyFull": [steady("onager_exchange_free_bytes", 9, executor_id="e1")],
    "OnagerExecutorQuarantined": [steady("onager_executors", 1, state="quarantined", mode="pull")],
    "OnagerExecutorsDie": [growing("onager_executor_lost_total", 1, reason="lease")],
    "OnagerExecutorCallsFail": [growing("onager_executor_call_failures_total", 1)],
    "OnagerCertificateExpires": [steady("onager_certificate_expiry_timestamp_seconds", 86400, use="server")],
}


def of_cluster(job, found):
    return [{**each, "series": each["series"].replace("{", f'{{job="{job}",')} for each in found]


def firing(found, expected):
    """Return a test of promtool: after three quarters of an hour of *found*, the alerts of *expected* fire."""
    alerts = [{"labels": f"{{{labels}}}", "value": 1} for labels in expected]
    query = {
        "expr": 'max by (alertname, job) (ALERTS{alertstate="firing"})',
        "eval_time": "45m",
        "exp_samples": alerts,
    }
    return {"interval": "1m", "input_series": found, "promql_expr_test": [query]}


def test_each_alert_fires_for_the_cluster_that_it_is_about_and_no_other_does(tmp_path):
    """Each cluster has the trouble that it is named after; one has none."""
    assert {*CHANGES, "OnagerNoScheduler"} == {alert.name for alert in ALERTS}
    found = of_cluster("healthy", HEALTHY)
    for name, changed in CHANGES.items():
        others = {each["series"] for each in changed}
        found += of_cluster(name, [each for each in HEALTHY if each["series"] not in others] + changed)
    each_its_own = firing(found, [f'alertname="{name}",job="{name}"' for name in CHANGES])
    nobody = firing([], ['alertname="OnagerNoScheduler"'])
    tests = {
        "rule_files": [str(HERE / "rules.yml")],
        "evaluation_interval": "1m",
        "tests": [each_its_own, nobody],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(tests))  # which is YAML, too
    promtool("test", "rules", file)
