"""A job's timeline as SVG, complete in itself: no script, no font, nothing loaded; light or dark as its viewer is."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from onager.execution_graph import StageWork
from onager.execution_graph.intervals import Outcome
from onager.scheduler.api.timeline.model import Bar, Bucket, Mark, MarkKind, StageTimes, Timeline

_WIDTH: Final = 1200
_LEFT: Final = 170
_RIGHT: Final = 24
_TOP: Final = 64
_STRIP: Final = 16
"""The height of the line that says which scheduler drove the job."""
_ROW: Final = 13
_LANES_HEIGHT: Final = 900
"""Rows get thinner beyond it."""
_LEAST_ROW: Final = 3
_GAP: Final = 7
_LINE: Final = 16
_TICKS: Final = 10
_COLOURS: Final = 8
_MAX_LISTED: Final = 24
_MAX_STAGES: Final = 16
_LABEL_CHARS: Final = 22
_LINE_CHARS: Final = 150
_STEPS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, *(s * 1000 for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)))
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE: Final = """\
svg{--paper:#fff;--ink:#1f2933;--faint:#7b8794;--line:#dfe3e8;--lane:#f5f7f9;--bad:#d64545;--lost:#de911d;
--off:#9aa5b1;--mark:#52606d;--c0:#3e7cb1;--c1:#4c9f70;--c2:#8e6bbf;--c3:#2a9d9d;--c4:#6b7fd7;--c5:#7a9a3c;
--c6:#b0698f;--c7:#5b8a9a;font:12px system-ui,sans-serif;background:var(--paper)}
@media (prefers-color-scheme:dark){svg{--paper:#14181d;--ink:#e4e7eb;--faint:#9aa5b1;--line:#2c343d;--lane:#1b2128;
--bad:#ef6b6b;--lost:#f0b145;--off:#616e7c;--mark:#cbd2d9;--c0:#5fa3dc;--c1:#66bd8c;--c2:#ab8bdb;--c3:#48bdbd;
--c4:#8b9cf0;--c5:#9cbd57;--c6:#d08bb0;--c7:#7daebf}}
text{fill:var(--ink)}.f{fill:var(--faint)}.h{font-size:16px;font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}
.p{fill:var(--paper)}.l{fill:var(--lane)}.t{stroke:var(--line)}.w{opacity:.32}.r{opacity:.75}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}
.c6{fill:var(--c6)}.c7{fill:var(--c7)}.bad{fill:var(--bad)}.lost{fill:var(--lost)}.off{fill:var(--off)}
.v{stroke:var(--mark);stroke-dasharray:2 3}.k{fill:var(--mark)}.kb{fill:var(--bad)}.kl{fill:var(--lost)}
.n{fill:var(--paper);font-size:9px;text-anchor:middle}.s{opacity:.22}"""
STYLE_HASH: Final = f"sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}"
"""The style of every picture, as a content security policy names it."""

_WORKS: Final = {
    StageWork.PLAN: "planning",
    StageWork.REPLAN: "planning again",
    StageWork.FEED: "finding partitions",
    StageWork.PUBLISH_PLAN: "planning to publish",
    StageWork.PUBLISH: "publishing",
    StageWork.STEP: "steps, each a job of its own",
    StageWork.PROGRAM: "the program",
}
_SYMBOLS: Final = {
    MarkKind.TAKE_OVER: ("kl", "a scheduler took over"),
    MarkKind.EXECUTOR_LOST: ("kb", "executor lost"),
    MarkKind.TASK_RETRY: ("kb", "task tried again"),
    MarkKind.STAGE_ROLLBACK: ("kl", "stage rolled back"),
    MarkKind.SECOND_ATTEMPTS: ("k", "second attempts"),
    MarkKind.LAUNCHES_REPEATED: ("k", "launches repeated"),
    MarkKind.STREAMING_GIVEN_UP: ("kl", "streaming given up"),
    MarkKind.PLANNED: ("k", "planned"),
    MarkKind.CANCELLED: ("kl", "cancelled"),
    MarkKind.NOT_KEPT: ("k", "not kept"),
    MarkKind.ENDED: ("k", "ended"),
}
_TROUBLE: Final = {Outcome.FAILED: "bad", Outcome.LOST: "lost", Outcome.KILLED: "off", Outcome.STOPPED: "off"}


class _Frame(NamedTuple):
    """Where moments and rows lie."""

    start_ms: int
    end_ms: int
    row: float

    def x(self, at_ms: float) -> float:
        at_ms = min(max(at_ms, self.start_ms), self.end_ms)
        return _LEFT + (at_ms - self.start_ms) / (self.end_ms - self.start_ms) * (_WIDTH - _LEFT - _RIGHT)


def picture(timeline: Timeline) -> str:
    """Return a whole *timeline* (one that was asked for from the beginning) as an SVG document."""
    rows = sum(max(1, lane.rows) for lane in timeline.lanes) if timeline.bars else 2 * len(timeline.lanes)
    room = max(1.0, (_LANES_HEIGHT - _GAP * len(timeline.lanes)) / max(1, rows))
    row = min(float(_ROW), max(float(_LEAST_ROW), room))
    frame = _Frame(timeline.submitted_ms, max(timeline.to_ms, timeline.submitted_ms + 1), row)
    tops, bottom = _lane_tops(timeline, row)
    body = [*_axis(frame, bottom), *_schedulers(timeline, frame), *_lanes(timeline, tops, row)]
    if timeline.bucket_ms:
        body += _cells(timeline, frame, tops)
    else:
        body += _bars(timeline.bars, frame, tops)
    marks = [mark for mark in timeline.marks if mark.kind is not MarkKind.SUBMITTED]
    body += _marks(marks, timeline, frame, tops, bottom)
    legend, height = _legend(timeline, marks, bottom + 34)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"',
            f' height="{height}" role="img" aria-label="{_text(f"timeline of job {timeline.job_id}")}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="p" width="{_WIDTH}" height="{height}"/>',
            *_head(timeline),
            *body,
            *legend,
            "</svg>",
            "",
        )
    )


def _head(timeline: Timeline) -> Iterator[str]:
    begun = datetime.fromtimestamp(timeline.submitted_ms / 1000, UTC)
    span = _span(timeline.to_ms - timeline.submitted_ms)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in timeline.outcomes.items())
    yield f'<text class="h" x="12" y="24">{_text(timeline.name or timeline.job_id, 110)}</text>'
    facts = f"{timeline.job_id}   {timeline.state}   {begun:%Y-%m-%d %H:%M:%S} UTC, {span}   attempts: {counts}"
    partial = "   (some of its history is not in the store any more)" if timeline.is_partial else ""
    yield f'<text class="f" x="12" y="43" xml:space="preserve">{_text(facts + partial, _LINE_CHARS)}</text>'


def _axis(frame: _Frame, bottom: float) -> Iterator[str]:
    span_ms = frame.end_ms - frame.start_ms
    step_ms = next((step for step in _STEPS_MS if span_ms / step <= _TICKS), None)
    if step_ms is None:
        step_ms = _HOUR_MS * -(-span_ms // (_HOUR_MS * _TICKS))
    for offset_ms in range(0, span_ms + 1, step_ms):
        x = frame.x(frame.start_ms + offset_ms)
        yield f'<line class="t" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom:.1f}"/>'
        yield f'<text class="f m" x="{x:.1f}" y="{bottom + 14:.1f}">{_span(offset_ms)}</text>'


def _schedulers(timeline: Timeline, frame: _Frame) -> Iterator[str]:
    """Yield the strip that says which scheduler committed what happened."""
    first = next((mark.scheduler_id for mark in timeline.marks if mark.kind is MarkKind.SUBMITTED), "")
    turns = [(timeline.submitted_ms, first)]
    turns += [(mark.at_ms, mark.scheduler_id) for mark in timeline.marks if mark.kind is MarkKind.TAKE_OVER]
    names = list(dict.fromkeys(name for _, name in turns))
    yield f'<text class="f e" x="{_LEFT - 10}" y="{_TOP + 12}">scheduler</text>'
    for (at_ms, name), until_ms in zip(turns, [*(at for at, _ in turns[1:]), frame.end_ms], strict=True):
        x, width = frame.x(at_ms), frame.x(until_ms) - frame.x(at_ms)
        said = f"{name or 'not known'}: from {_span(at_ms - frame.start_ms)} to {_span(until_ms - frame.start_ms)}"
        colour = f"c{(names.index(name) + 3) % _COLOURS}"
        yield _rect(f"{colour} s", x, _TOP, max(width - 1, 1), _STRIP, said)
        if width > 7 * len(name):
            yield f'<text x="{x + 5:.1f}" y="{_TOP + 12}" pointer-events="none">{_text(name)}</text>'


def _lane_tops(timeline: Timeline, row: float) -> tuple[list[float], float]:
    tops = []
    y = float(_TOP + _STRIP + _GAP)
    for lane in timeline.lanes:
        tops.append(y)
        y += row * (max(1, lane.rows) if timeline.bars else 2) + _GAP
    return tops, y


def _lanes(timeline: Timeline, tops: Sequence[float], row: float) -> Iterator[str]:
    for lane, top in zip(timeline.lanes, tops, strict=True):
        height = row * (max(1, lane.rows) if timeline.bars else 2)
        yield f'<rect class="l" x="{_LEFT}" y="{top:.1f}" width="{_WIDTH - _LEFT - _RIGHT}" height="{height:.1f}"/>'
        name = lane.executor_id
        short = name if len(name) <= _LABEL_CHARS else f"{name[: _LABEL_CHARS - 1]}…"
        y = top + min(height / 2 + 4, 12)
        yield f'<text class="e" x="{_LEFT - 10}" y="{y:.1f}">{_text(short)}<title>{_text(name)}</title></text>'


def _bars(bars: Iterable[Bar], frame: _Frame, tops: Sequence[float]) -> Iterator[str]:
    for bar in bars:
        from_x = frame.x(bar.from_ms)
        to_ms = frame.end_ms if bar.to_ms is None else bar.to_ms
        width = max(frame.x(to_ms) - from_x, 1.5)
        y, height = tops[bar.lane] + bar.row * frame.row + 0.5, max(frame.row - 1, 1.0)
        colour = _TROUBLE.get(bar.outcome, f"c{bar.stage % _COLOURS}")
        if bar.outcome is Outcome.RUNNING:
            colour += " r"
        yield f"<g><title>{_text(_tooltip(bar, frame.start_ms))}</title>"
        begun_x = from_x
        if bar.run_ms and bar.to_ms is not None:
            begun_x = max(from_x, min(frame.x(to_ms - bar.run_ms), from_x + width - 1))
            if begun_x - from_x >= 1:
                yield _rect(f"{colour} w", from_x, y, begun_x - from_x, height)
        yield _rect(colour, begun_x, y, from_x + width - begun_x, height)
        yield "</g>"


def _tooltip(bar: Bar, start_ms: int) -> str:
    attempt = f", attempt {bar.attempt}" if bar.attempt else ""
    of_stage = f" (attempt {bar.stage_attempt})" if bar.stage_attempt else ""
    what = "planning" if not bar.stage else f"stage {bar.stage}{of_stage}, task {bar.partition}{attempt}"
    also = f", with stage {bar.also_stage}" if bar.also_stage else ""
    second = ", a second attempt" if bar.speculative else ""
    when = f"from {_span(bar.from_ms - start_ms)}" + ("" if bar.to_ms is None else f" to {_span(bar.to_ms - start_ms)}")
    parts = [f"{name} {_span(value)}" for name, value in _durations(bar) if value]
    why = f": {bar.kind}" if bar.kind else ""
    lines = [f"{what}{also}{second}: {bar.outcome.value}{why}", when, ", ".join(parts), bar.message]
    return "\n".join(line for line in lines if line)


def _durations(bar: Bar) -> tuple[tuple[str, int], ...]:
    return (("waited", bar.queued_ms), ("ran", bar.run_ms), ("fetched", bar.fetch_ms), ("committed", bar.commit_ms))


def _cells(timeline: Timeline, frame: _Frame, tops: Sequence[float]) -> Iterator[str]:
    """Yield how much executors had to do, for a job with too many attempts for bars; what failed lies on top."""
    for bucket in timeline.buckets:
        most = max(1, timeline.lanes[bucket.lane].rows)
        height = 2 * frame.row
        x, width = frame.x(bucket.from_ms), frame.x(bucket.from_ms + timeline.bucket_ms) - frame.x(bucket.from_ms)
        busy = max(1.0, min(1.0, bucket.running / most) * height)
        y = tops[bucket.lane] + height - busy
        yield _rect("c0", x, y, max(width - 0.4, 0.6), busy, _counted(bucket, frame.start_ms))
        for name, colour in (("failed", "bad"), ("lost", "lost")):
            if getattr(bucket, name):
                yield _rect(colour, x, tops[bucket.lane], max(width - 0.4, 1.5), frame.row * 0.7)


def _counted(bucket: Bucket, start_ms: int) -> str:
    names = (Outcome.SUCCESSFUL, Outcome.FAILED, Outcome.LOST, Outcome.KILLED, Outcome.STOPPED)
    ends = ", ".join(f"{getattr(bucket, name):,} {name}" for name in names if getattr(bucket, name))
    return f"at {_span(bucket.from_ms - start_ms)}: {bucket.running:g} at a time" + (f"; {ends}" if ends else "")


def _marks(
    marks: Sequence[Mark], timeline: Timeline, frame: _Frame, tops: Sequence[float], bottom: float
) -> Iterator[str]:
    """Yield a line for each moment that has a number in the legend, and a cross where an executor was lost."""
    lanes = {lane.executor_id: tops[number] for number, lane in enumerate(timeline.lanes)}
    free_x = 0.0
    for number, mark in enumerate(_listed(marks), 1):
        x = frame.x(mark.at_ms)
        colour = _SYMBOLS[mark.kind][0]
        yield f"<g><title>{_text(_said(mark, frame.start_ms))}</title>"
        yield f'<line class="v" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom + 16:.1f}"/>'
        x, y = max(x, free_x), bottom + 24
        free_x = x + 14
        yield f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
        yield f'<text class="n" x="{x:.1f}" y="{y + 3.2:.1f}">{number}</text></g>'
    for mark in marks:
        if mark.kind is MarkKind.EXECUTOR_LOST and mark.executor_id in lanes:
            x, y = frame.x(mark.at_ms), lanes[mark.executor_id]
            title = f"<title>{_text(_said(mark, frame.start_ms))}</title>"
            path = f"M{x - 4:.1f} {y + 1:.1f}l8 8m0 -8l-8 8"
            yield f'<path d="{path}" stroke="var(--bad)" stroke-width="2.4" fill="none">{title}</path>'


def _listed(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks with a number, by time: the legend below the picture describes them."""
    chosen = sorted(marks, key=lambda mark: (list(_SYMBOLS).index(mark.kind), mark.number))
    kept: list[Mark] = []
    of_kind: Counter[MarkKind] = Counter()
    for mark in chosen:
        if of_kind[mark.kind] < _MAX_LISTED // 3 and len(kept) < _MAX_LISTED:
            kept.append(mark)
            of_kind[mark.kind] += 1
    return sorted(kept, key=lambda mark: (mark.at_ms, mark.number))


def _said(mark: Mark, start_ms: int) -> str:
    times = f" ({mark.count:,} tasks)" if mark.count > 1 else ""
    text = f": {mark.text}" if mark.text else ""
    return f"{_span(mark.at_ms - start_ms)}  {_SYMBOLS[mark.kind][1]}{times}{text}"


def _legend(timeline: Timeline, marks: Sequence[Mark], top: float) -> tuple[list[str], int]:
    lines: list[str] = []
    y = top + 22
    stages: dict[int, StageTimes] = {}
    for stage in timeline.stages:
        stages.setdefault(stage.stage, stage)
    keys = [(f"c{stage.stage % _COLOURS}", _name(stage)) for stage in [*stages.values()][:_MAX_STAGES]]
    if timeline.bucket_ms:
        keys = [("c0", "attempts at a time")]
    keys += [("bad", "failed"), ("lost", "lost"), ("off", "killed or stopped")]
    keys += [] if timeline.bucket_ms else [("c0 w", "pale: before it began to run")]
    x = 12.0
    for colour, name in keys:
        width = 26 + 6.6 * len(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = 12.0, y + _LINE
        lines.append(_rect(colour, x, y - 9, 10, 10))
        lines.append(f'<text x="{x + 14:.1f}" y="{y:.1f}">{_text(name)}</text>')
        x += width
    y += _LINE + 6
    listed = _listed(marks)
    for number, mark in enumerate(listed, 1):
        lines.append(f'<circle class="{_SYMBOLS[mark.kind][0]}" cx="19" cy="{y - 4:.1f}" r="6.5"/>')
        lines.append(f'<text class="n" x="19" y="{y - 0.8:.1f}">{number}</text>')
        said = _text(_said(mark, timeline.submitted_ms), _LINE_CHARS)
        lines.append(f'<text x="32" y="{y:.1f}" xml:space="preserve">{said}</text>')
        y += _LINE
    if left := len(marks) - len(listed):
        lines.append(f'<text class="f" x="32" y="{y:.1f}">and {left:,} more: onager events {timeline.job_id}</text>')
        y += _LINE
    return lines, int(y) + 4


def _name(stage: StageTimes) -> str:
    if stage.work is StageWork.QUERY:
        return f"stage {stage.stage}"
    return _WORKS[stage.work]


def _rect(colour: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    if not title:
        return f'<rect class="{colour}" {place}/>'
    return f'<rect class="{colour}" {place}><title>{_text(title)}</title></rect>'


def _span(ms: float) -> str:
    """Return a duration for people."""
    if ms < _SECOND_MS:
        return f"{ms:.0f} ms"
    if ms < _MINUTE_MS:
        return f"{ms / _SECOND_MS:.3g} s"
    seconds = round(ms / _SECOND_MS)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if seconds else f"{minutes} min"


def _text(text: str, limit: int = 1_000) -> str:
    """Return text as XML has it: escaped, without characters that XML cannot hold, on lines as they are."""
    text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    return escape(text if len(text) <= limit else f"{text[: limit - 1]}…")
