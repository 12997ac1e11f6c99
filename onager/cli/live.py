"""Shows a job's progress on standard error: moving bars on a terminal, lines elsewhere."""

import sys
import time
from typing import TYPE_CHECKING, Self

from onager.cli.times import far_text
from onager.client.progress import JobProgress, JobState, StageProgress, TaskRetry

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_BAR_WIDTH = 24


def progress_view() -> "LineView | LiveView":
    """Return the view for standard error: bars on a terminal, else lines."""
    return LiveView() if sys.stderr.isatty() else LineView()


class LineView:
    """Prints a line when the job's state changes, and when a stage starts or ends."""

    def __init__(self) -> None:
        self._said: dict[object, str] = {}
        self._tenth = 0
        self._fell = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: JobProgress) -> None:
        """Print what has changed in *progress*."""
        if not progress.state.is_final:
            self._say_job(progress)
            self._say_far(progress)
        if progress.retry is not None:
            self._say_retry(progress.retry)
        if progress.durable_because:
            self._say("exchange", f"streaming was given up: {progress.durable_because}")
        for stage in progress.stages:
            if stage.state in {"running", "successful", "failed"}:
                text = f"stage {stage.stage_id} {stage.name}: {stage.state}"
                if stage.attempt:
                    text += f", attempt {stage.attempt}"
                if stage.work == "step":
                    self._say(stage.stage_id, f"step {stage.stage_id} {stage.name}: {stage.state}{_in_words(stage)}")
                    continue
                self._say(stage.stage_id, f"{text}, {stage.partitions} task{'' if stage.partitions == 1 else 's'}")
        if progress.state.is_final:
            self._say_job(progress)

    def _say_job(self, progress: JobProgress) -> None:
        waiting = f" ({progress.waiting_for})" if progress.waiting_for else ""
        verb = "was" if progress.state is JobState.CANCELLED else "is"
        verb = "has" if progress.state is JobState.FAILED else verb
        self._say("job", f"job {progress.job_id} {verb} {progress.state}{waiting}")

    def _say_far(self, progress: JobProgress) -> None:
        """Print how far the job is, at each tenth, and why that fell."""
        tenth, fell = int(10 * progress.fraction), progress.fraction_fell
        if tenth > self._tenth or fell not in {"", self._fell}:
            self._tenth, self._fell = tenth, fell
            if far := far_text(progress):
                self._say("far", f"job {progress.job_id}: {far}")

    def _say_retry(self, retry: TaskRetry) -> None:
        """Print one line per stage and try, for the first task."""
        key = ("retry", retry.stage_id, retry.next_try, bool(retry.max_tries))
        if key not in self._said:
            self._say(key, retry.text(time.time_ns() // 1_000_000))

    def _say(self, about: object, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            print(text, file=sys.stderr, flush=True)


def _in_words(step: StageProgress) -> str:
    """Return what else there is to say of a step: its job, and when that has ended, its rows."""
    rows = f", {step.step_rows:,} row{'' if step.step_rows == 1 else 's'}" if step.state == "successful" else ""
    return f" as job {step.child_job_id}{rows}" if step.child_job_id else rows


class LiveView:
    """A table of stages with bars, drawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._progress: JobProgress | None = None
        self._live = Live(
            console=Console(stderr=True), get_renderable=self._render, refresh_per_second=10, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: JobProgress) -> None:
        """Draw *progress* in place of the last."""
        self._progress = progress

    def _render(self) -> "RenderableType":
        # Called for every frame, so that the seconds advance between changes.
        return "" if self._progress is None else _stage_table(self._progress)


def _stage_table(progress: JobProgress) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    since_ms = progress.started_ms or progress.submitted_ms
    now_ms = progress.ended_ms or time.time_ns() // 1_000_000
    title = f"{progress.state} {max(0, now_ms - since_ms) / 1000:.1f} s  {progress.job_id}"
    if far := far_text(progress):
        title += f"  {far}"
    if progress.waiting_for:
        title += escape(f"  ({progress.waiting_for})")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for header in ("stage", "", "tasks", "running", "retried", "rows"):
        table.add_column(header, justify="left" if header in {"stage", ""} else "right")
    for stage in progress.stages:
        table.add_row(
            escape(f"{stage.stage_id} {stage.name}"[:40]),
            _bar(stage),
            f"{stage.successful}/{stage.partitions}",
            str(stage.running or ""),
            str(stage.tasks_failed + stage.tasks_lost or ""),
            f"{rows:,}" if (rows := stage.rows_out or stage.step_rows) else "",
        )
    if progress.retry is not None:
        table.caption = escape(progress.retry.text(now_ms))
    elif progress.state is JobState.PUBLISHING:
        table.caption = escape(f"publishing to {progress.sink_path}")
    return table


def _bar(stage: StageProgress) -> str:
    if stage.partitions == 0:
        return ""
    done = max(_BAR_WIDTH * stage.successful // stage.partitions, int(_BAR_WIDTH * stage.fraction))
    running = min(_BAR_WIDTH - done, -(-_BAR_WIDTH * stage.running // stage.partitions))
    colour = {"failed": "red", "successful": "green"}.get(stage.state, "cyan")
    return f"[{colour}]{'━' * done}[/][yellow]{'╸' * running}[/][dim]{'·' * (_BAR_WIDTH - done - running)}[/]"
