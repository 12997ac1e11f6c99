"""How far a job is, where its time went, and how long its tasks took, for people."""

from collections.abc import Sequence
from typing import Final

from onager.client.progress import JobProgress, StageProgress, TimeShare

_USES: Final = {
    "waiting": "waiting for a slot",
    "code_generation": "code generation",
    "retry_pause": "pauses before retries",
    "fetching": "fetching rows",
    "function": "the Python function",
    "wasted": "lost or repeated work",
    "unknown": "not known any more",
}
_BESIDE: Final = ("queued", "fetch", "delivery")
LATENCY_HEADERS: Final = ("STAGE", "TASKS", "RUN P50 S", "P95", "P99", "MAX", "QUEUED P95", "FETCH P95", "DELIVERY P95")
_LEAST_PART: Final = 0.005


def shares_text(shares: Sequence[TimeShare]) -> str:
    """Return where the time went, the largest part first; parts below half a percent are left out."""
    total_ms = sum(share.ms for share in shares)
    parts = [
        f"{_USES.get(share.use, share.use)} {share.ms / 1000:.1f} s ({100 * share.ms / total_ms:.0f} %)"
        for share in sorted(shares, key=lambda share: -share.ms)
        if share.ms >= _LEAST_PART * total_ms
    ]
    return f"where {total_ms / 1000:.1f} s went: {', '.join(parts)}" if parts else ""


def far_text(progress: JobProgress) -> str:
    """Return how far a running job is and how long it goes on: ``43 %, 12 to 18 s left``; empty before 1 %."""
    if progress.state.is_final or progress.fraction < 0.01:  # noqa: PLR2004 - one percent
        return ""
    text = f"{int(100 * progress.fraction)} %"
    if progress.eta_ms is not None:
        text += f", {_span(*progress.eta_ms)} left"
    return f"{text} (fell: {progress.fraction_fell})" if progress.fraction_fell else text


def _span(low_ms: int, high_ms: int) -> str:
    """Return two durations for people, in the unit of the longer one."""
    for unit, unit_ms in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if high_ms >= 2 * unit_ms or unit == "s":
            low, high = low_ms // unit_ms, -(-high_ms // unit_ms)
            return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"
    return ""


def latency_rows(stages: Sequence[StageProgress]) -> list[tuple[object, ...]]:
    """Return the lines of a table of how long tasks took, one for each stage of more than one task."""
    rows: list[tuple[object, ...]] = []
    for stage in stages:
        parts = {each.part: each for each in stage.latencies}
        run = parts.get("run")
        if run is not None and run.tasks > 1:
            figures = [run.p50_ms, run.p95_ms, run.p99_ms, run.max_ms]
            figures += [parts[part].p95_ms if part in parts else 0 for part in _BESIDE]
            rows.append((stage.stage_id, run.tasks, *map(_seconds, figures)))
    return rows


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}" if ms < 10_000 else f"{ms / 1000:.1f}"  # noqa: PLR2004 - what is read easily
