"""What must hold despite all faults: each oracle checks the records of a run, and returns a verdict."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.tpch.comparison import difference
from onager.execution_graph import RetryLimits
from onager.execution_graph.losses import DEATHS_ALONE, DEATHS_BEFORE_ALONE
from tests.chaos.faults import EndedByItself, Injected
from tests.chaos.schedule import FaultKind
from tests.chaos.workload import JobRecord

MEMORY_LIMIT_BYTES: Final = 400 << 20
"""Far more than a scheduler needs for such a load, far less than one that keeps everything."""
_LIMITS: Final = RetryLimits()
_SLOW_S: Final = 15.0
"""How much later than it strikes a fault may show."""
_LONGEST_START_S: Final = 60.0
_CUTS_EXECUTOR: Final = {FaultKind.REFUSE, FaultKind.HOLD, FaultKind.DELAY}
_HURTS_ETCD: Final = {kind for kind in FaultKind if "ETCD" in kind.name}
_ESCAPED: Final = ("Traceback", "ERROR asyncio", "ERROR grpc", "Task exception", "Exception in callback")


@dataclass(slots=True)
class Verdict:
    """What one oracle says."""

    oracle: str
    findings: list[str] = field(default_factory=list)
    """Violations; the verdict is clean without any."""
    notes: list[str] = field(default_factory=list)
    """Failures that faults explain."""

    @property
    def is_clean(self) -> bool:
        return not self.findings


def all_ended(records: Iterable[JobRecord]) -> Verdict:
    """Every acknowledged job ended, with a right result, or with a failure that faults explain."""
    verdict = Verdict("every acknowledged job ended")
    for record in records:
        if record.acknowledged_s is not None and record.ended_s is None:
            verdict.findings.append(f"{_name(record)} did not end: {record.trouble or 'it still runs'}")
        elif record.acknowledged_s is None:
            verdict.findings.append(f"{_name(record)} was not acknowledged: {record.trouble or 'it still waits'}")
    return verdict


def results_right(records: Iterable[JobRecord], faults: Sequence[Injected]) -> Verdict:
    """Each job that ended gave what plain Spark gives; the failure of one that did not is explained."""
    verdict = Verdict("results equal plain Spark's, failures have a reason")
    for record in records:
        if record.ended_s is None or record.trouble is None:
            continue
        reason = explanation(record, faults)
        text = f"{_name(record)}: {record.trouble}"
        if reason is None:
            verdict.findings.append(text)
        else:
            verdict.notes.append(f"{text} [{reason}]")
    return verdict


def explanation(record: JobRecord, faults: Sequence[Injected]) -> str | None:
    """Return which faults made the job fail, by the rules for poisonous tasks; `None` when none did."""
    if record.failure is None or record.ended_s is None:
        return None
    met = [f for f in faults if f.overlaps(record.submitted_s - _SLOW_S, record.ended_s)]
    kind = record.failure.kind
    if kind == "io_error":
        killed = [f for f in met if f.fault.kind is FaultKind.KILL_PYTHON_WORKER]
        if len(killed) >= _LIMITS.task_max_failures:
            return f"{len(killed)} Python workers were killed meanwhile"
    if kind == "user_error" and "ended the JVMs" in record.failure.message:
        killed = [f for f in met if f.fault.kind is FaultKind.KILL_JVM]
        if len(killed) >= DEATHS_BEFORE_ALONE + DEATHS_ALONE:
            return f"{len(killed)} JVMs were killed meanwhile: the task was taken for the cause"
    return None


def nothing_ran_again(records: Iterable[JobRecord]) -> Verdict:
    """No finished task ran again: executors share the exchange, so nobody's death takes a finished task's output."""
    verdict = Verdict("no finished task ran again")
    for record in records:
        verdict.findings += [f"{_name(record)}: {what}" for what in record.rerun]
    return verdict


def sinks_whole(sinks: Mapping[Path, Sequence[JobRecord]], expected: pa.Table) -> Verdict:
    """Each dataset holds the rows of each successful job once, and nothing of a job that failed."""
    verdict = Verdict("sinks hold each row once")
    for path, records in sinks.items():
        if not path.exists():
            verdict.findings += [f"{path} is not there, and {_name(r)} wrote to it" for r in records if r.is_successful]
            continue
        table = ds.dataset(path, format="parquet").to_table()
        known = {record.tag: record for record in records}
        for tag in sorted(set(table.column("tag").to_pylist()) - set(known)):
            verdict.findings.append(f"{path.name} has rows of {tag}, which nobody wrote")
        for tag, record in known.items():
            mine = table.filter(pc.equal(table.column("tag"), tag))
            if mine.num_rows == 0 and not record.is_successful:
                continue
            wanted = expected.set_column(0, "tag", pa.array([tag] * expected.num_rows))
            why = difference(mine, wanted, "")
            if why is not None:
                verdict.findings.append(f"{path.name} of {_name(record)}: {why}")
            elif record.ended_s is not None and record.trouble is not None:
                verdict.findings.append(f"{path.name} has the rows of {_name(record)}, which {record.trouble}")
        left = [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")]
        verdict.findings += [f"{name} is left beside the datasets" for name in left]
    return verdict


def died_for_a_reason(deaths: Iterable[EndedByItself], faults: Sequence[Injected]) -> Verdict:
    """No process ended by itself, but schedulers that were started while there was no store."""
    verdict = Verdict("no process ended by itself")
    for death in deaths:
        text = f"{death.name} ended with code {death.code}: {death.last_words}"
        met = [f for f in faults if f.overlaps(death.at_s - _LONGEST_START_S, death.at_s)]
        is_refused = death.code == 2 and not death.was_serving
        without = [f.what for f in met if _hides_etcd(f, death.name)]
        if is_refused and without:
            verdict.notes.append(f"{text} [started during: {', '.join(without)}]")
        else:
            verdict.findings.append(text)
    return verdict


def logs_calm(logs: Mapping[str, str], faults: Sequence[Injected]) -> Verdict:
    """No scheduler or executor logged an error that no fault explains, and no exception of a scheduler got away."""
    verdict = Verdict("nothing for an operator in the logs")
    counts: Counter[str] = Counter()
    for name, text in logs.items():
        for line in text.splitlines():
            entry = _entry(line)
            if entry.get("level") in ("error", "critical"):
                event = entry.get("event")
                finding = f"{name}: {event}: {str(entry.get('error', ''))[:200]}"
                killed = [f for f in faults if f.fault.kind is FaultKind.KILL_JVM and f.fault.target == name]
                if event == "jvm_lost" and killed:
                    verdict.notes.append(f"{finding} [its JVM was killed]")
                else:
                    counts[finding] += 1
            elif name.startswith("scheduler") and line.startswith(_ESCAPED):
                counts[f"{name}: {line[:200]}"] += 1
    verdict.findings += [f"{what} ({count} times)" for what, count in counts.items()]
    return verdict


def memory_bounded(most_bytes: Mapping[str, int]) -> Verdict:
    """No scheduler took more memory than it should."""
    verdict = Verdict("memory of schedulers is bounded")
    for name, size in sorted(most_bytes.items()):
        text = f"{name} took {size >> 20} MiB at most"
        (verdict.findings if size > MEMORY_LIMIT_BYTES else verdict.notes).append(text)
    return verdict


def _entry(line: str) -> dict[str, Any]:
    """Return a log line as a dict; empty for lines of libraries."""
    try:
        return dict(json.loads(line)) if line.startswith("{") else {}
    except ValueError:
        return {}


def _hides_etcd(injected: Injected, name: str) -> bool:
    if not name.startswith("scheduler"):
        return False
    return injected.fault.kind in _HURTS_ETCD or injected.fault.target == name


def _name(record: JobRecord) -> str:
    return f"job {record.job_id} ({record.kind} of {record.client})"
