"""Alert rules. One Prometheus may watch several clusters: each has a job name of its own, and an alert for itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RUNBOOK: Final = "docs/operations.md#"


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    name: str
    severity: str
    """``critical``: somebody should look now; ``warning``: today."""
    lasts: str
    """How long it has to be so, as Prometheus writes durations."""
    expr: str
    summary: str

    @property
    def anchor(self) -> str:
        """Return the heading of its section in docs/operations.md, as a link names it."""
        return self.name.lower()


ALERTS: Final = (
    Alert(
        "OnagerNoScheduler",
        "critical",
        "1m",
        "absent(onager_build_info)",
        "No scheduler answers: no job goes on",
    ),
    Alert(
        "OnagerLastScheduler",
        "warning",
        "5m",
        "max by (job) (onager_schedulers) == 1 and max by (job) (max_over_time(onager_schedulers[6h])) > 1",
        "One scheduler is left of several: nobody could take over its jobs",
    ),
    Alert(
        "OnagerNoExecutor",
        "critical",
        "5m",
        "max by (job) (onager_slots_wanted) > 0 and "
        'sum by (job) (max by (job, state) (onager_executor_slots{state=~"busy|free"})) == 0',
        "Jobs wait, and no executor takes work",
    ),
    Alert(
        "OnagerQueueStuck",
        "critical",
        "10m",
        'max by (job) (onager_tasks{state="available"}) > 0 and max by (job) (onager_tasks{state="running"}) == 0 and '
        'max by (job) (onager_executor_slots{state="free"}) > 0',
        "Tasks wait, slots are free, and nothing runs",
    ),
    Alert(
        "OnagerJobsFail",
        "warning",
        "5m",
        'sum by (job) (increase(onager_jobs_ended_total{state="failed",error_kind!="user_error"}[30m])) / '
        "sum by (job) (increase(onager_jobs_ended_total[30m])) > 0.1 and "
        "sum by (job) (increase(onager_jobs_ended_total[30m])) >= 5",
        "More than a tenth of the jobs fail, and not by their users' errors",
    ),
    Alert(
        "OnagerRecordsDamaged",
        "critical",
        "0m",
        "max by (job) (onager_job_records_damaged) > 0",
        "The record of a job cannot be read: the job stands still",
    ),
    Alert(
        "OnagerTakeovers",
        "warning",
        "0m",
        "max by (job) (changes(onager_schedulers[30m])) > 8 and "
        'sum by (job) (increase(onager_job_takeovers_total{reason=~"gone|joined"}[30m])) > 0',
        "Schedulers come and go all the time, and jobs change hands with them",
    ),
    Alert(
        "OnagerEventLoopLag",
        "warning",
        "5m",
        "histogram_quantile(0.99, sum by (job, instance, le) (rate(onager_event_loop_lag_seconds_bucket[5m]))) > 0.5",
        "A scheduler is half a second behind with its work",
    ),
    Alert(
        "OnagerLeaseNearlyLost",
        "warning",
        "0m",
        "min_over_time(onager_lease_remaining_seconds[5m]) < 0.25 * max_over_time(onager_lease_remaining_seconds[1h])",
        "A scheduler could not renew its lease in time, or has lost it",
    ),
    Alert(
        "OnagerClocksDiffer",
        "warning",
        "5m",
        "max by (job) (abs(onager_clock_ahead_seconds)) > 5",
        "The clock of a scheduler's machine is not that of the others",
    ),
    Alert(
        "OnagerStoreErrors",
        "critical",
        "2m",
        'sum by (job, instance) (rate(onager_state_request_seconds_count{outcome=~"unavailable|unknown"}[1m])) > 0',
        "Calls of the store fail: submissions and progress wait for it",
    ),
    Alert(
        "OnagerStoreSlow",
        "warning",
        "10m",
        "histogram_quantile(0.99, sum by (job, instance, le) "
        '(rate(onager_state_request_seconds_bucket{operation="put_txn"}[5m]))) > 0.1',
        "Writes take the store more than a tenth of a second",
    ),
    Alert(
        "OnagerExchangeNearlyFull",
        "warning",
        "5m",
        "max by (job, executor_id) (onager_exchange_free_bytes) / "
        "max by (job, executor_id) (onager_exchange_space_bytes) < 0.1",
        "Less than a tenth of the exchange directory's space is free",
    ),
    Alert(
        "OnagerExecutorQuarantined",
        "warning",
        "1m",
        'sum by (job) (max by (job, mode) (onager_executors{state="quarantined"})) > 0',
        "An executor is quarantined: nearly everything fails there that succeeds elsewhere",
    ),
    Alert(
        "OnagerExecutorsDie",
        "warning",
        "0m",
        'sum by (job) (increase(onager_executor_lost_total{reason!~"left|said_goodbye"}[30m])) > 3',
        "Executors are lost again and again, and their tasks with them",
    ),
    Alert(
        "OnagerExecutorCallsFail",
        "warning",
        "10m",
        "sum by (job, instance) (rate(onager_executor_call_failures_total[5m])) > 0",
        "A scheduler cannot call an executor in push mode",
    ),
    Alert(
        "OnagerCertificateExpires",
        "warning",
        "10m",
        "onager_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        "A certificate expires within two weeks",
    ),
)


def rules() -> str:
    """Return the file of rules, as YAML."""
    lines = [
        "# Generated by `python -m deploy.monitoring`; change deploy/monitoring/alerts.py instead.",
        "groups:",
        "  - name: onager",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += _entry(alert)
    return "\n".join(lines) + "\n"


def _entry(alert: Alert) -> list[str]:
    annotations: Mapping[str, str] = {"summary": alert.summary, "runbook_url": RUNBOOK + alert.anchor}
    return [
        f"      - alert: {alert.name}",
        f"        expr: {_quoted(alert.expr)}",
        f"        for: {alert.lasts}",
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        *(f"          {name}: {_quoted(text)}" for name, text in annotations.items()),
    ]


def _quoted(text: str) -> str:
    return json.dumps(text)  # a YAML string, too
