"""A plan that has run, as text for a terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from onager.client.amounts import seconds, size
from onager.client.final_plan import BoundOperators, FinalPlan, FinalStage, PlanOperator
from onager.client.plan_hints import Hint, plan_hints
from onager.client.task_costs import TaskCost

WIDTH: Final = 100
_INDENT: Final = "  "
_LEAST_TEXT: Final = 30
_MAX_PREFIX: Final = 24
_IDS: Final = re.compile(r"#\d+L?")
"""The ids of columns in Spark's text."""
_SCAN: Final = re.compile(r"FileScan (?P<format>\w+) ?(?P<table>\S*?) ?(?P<columns>\[.*?\]) (?:Batched|DataFilters)")
_LOCATION: Final = re.compile(r"Location: \w+(?:\(\d+ paths?\))?\[[^\],]*?([^/\],]+)[\],]")
_CODEGEN: Final = "WholeStageCodegen"
_UNSEEN: Final = frozenset({"ColumnarToRow", "InputAdapter"})
"""Operators that change nothing but the form of rows."""
_NOTES: Final = {
    "numFiles": "files",
    "filesSize": "",
    "dataSize": "",
    "shuffleBytesWritten": "written",
    "sortTime": "sort",
    "aggTime": "aggregate",
    "buildTime": "build",
    "buildDataSize": "built",
    "broadcastTime": "broadcast",
    "scanTime": "scan",
    "pythonNumRowsReceived": "rows from Python",
}
"""Further metrics that are worth a word, in this order."""
_COUNTS: Final = frozenset({"numFiles", "pythonNumRowsReceived"})


def plan_text(plan: FinalPlan, tasks: Mapping[int, Sequence[TaskCost]], *, per_task: bool = False) -> str:
    """Return *plan*, with what stands out; *tasks* are those of each stage, listed if *per_task*."""
    return "\n".join(plan_lines(plan, tasks, per_task=per_task))


def plan_lines(plan: FinalPlan, tasks: Mapping[int, Sequence[TaskCost]], *, per_task: bool = False) -> Iterator[str]:
    """Yield the lines of `plan_text`; none is longer than `WIDTH`."""
    hints = plan_hints(plan, tasks)
    for stage in plan.stages:
        stage_id = stage.progress.stage_id
        some = tasks.get(stage_id, ())
        yield from _stage_lines(stage, some, [hint for hint in hints if hint.stage_id == stage_id])
        if per_task and some:
            yield ""
            yield from _task_lines(some)
        yield ""
    if any(_counts_rows_only(stage) for stage in plan.stages):
        yield "Only rows were counted. With --conf onager.metrics=full operators tell time, memory and spill, too."


def _stage_lines(stage: FinalStage, tasks: Sequence[TaskCost], hints: Sequence[Hint]) -> Iterator[str]:
    progress = stage.progress
    head = f"stage {progress.stage_id}  "
    state = f"  {progress.state}"
    if progress.attempt:
        state += f" (attempt {progress.attempt})"
    if _has_tasks(stage):
        state += f", {progress.successful} of {progress.partitions} task{'s' * (progress.partitions != 1)}"
    if progress.ended_ms:
        state += f", {seconds(progress.ended_ms - progress.started_ms)}"
    name = _cut(progress.name, WIDTH - len(head) - len(state))
    yield head + name.ljust(WIDTH - len(head) - len(state)) + state
    if progress.work == "replan":
        yield from _wrapped("why ", progress.name.removeprefix("replan ").strip("()"))
    if progress.work == "query" and _has_tasks(stage):
        yield from _facts(stage, tasks)
        yield from _operator_lines(stage)
    for hint in hints:
        yield from _wrapped(f"! {hint.kind}: ", hint.text)


def _has_tasks(stage: FinalStage) -> bool:
    """Return whether the stage has tasks of its own: not if another one's computes it, or a new plan lacks it."""
    return stage.progress.state not in ("fused", "superseded")


def _facts(stage: FinalStage, tasks: Sequence[TaskCost]) -> Iterator[str]:
    progress = stage.progress
    if stage.inputs:
        reads = [f"stage {each.stage_id}{' (each task all of it)' * (each.read == 'all')}" for each in stage.inputs]
        yield from _wrapped("reads ", ", ".join(reads))
    if not progress.successful:
        return
    wrote = f"{progress.rows_out:,} row{'s' * (progress.rows_out != 1)}, {size(progress.bytes_out)}"
    if stage.output == "exchange":
        wrote += f", in {stage.buckets:,} bucket{'s' * (stage.buckets != 1)}"
    if stage.estimated_rows is not None:
        wrote += f"; Spark expected {stage.estimated_rows:,} rows"
    yield from _wrapped(f"{'wrote' if stage.output != 'result' else 'result'} ", wrote)
    took = [f"{seconds(progress.run_ms)} in all"]
    if progress.partitions > 1:
        took += _spread(stage, tasks)
    if stage.peak_memory_bytes:
        took.append(f"peak memory {size(stage.peak_memory_bytes)}")
    if progress.tasks_failed or progress.tasks_lost:
        took.append(f"{progress.tasks_failed} failed, {progress.tasks_lost} lost")
    if progress.wasted_ms:
        took.append(f"and {seconds(progress.wasted_ms)} of work that did not count")
    yield from _wrapped("tasks ", ", ".join(took))


def _spread(stage: FinalStage, tasks: Sequence[TaskCost]) -> Iterator[str]:
    usual_ms, most_ms = float(stage.median_run_ms), float(stage.longest_run_ms)
    if tasks:
        usual_ms, most_ms = median(task.run_ms for task in tasks), max(task.run_ms for task in tasks)
    if most_ms:
        yield f"the median {seconds(usual_ms)}"
        yield f"the slowest {seconds(most_ms)}"


def _operator_lines(stage: FinalStage) -> Iterator[str]:
    progress = stage.progress
    if not stage.reported:
        yield f"{_INDENT}operators: not reported"
        return
    if stage.reported < progress.partitions:
        yield f"{_INDENT}operators, as {stage.reported:,} of {progress.partitions:,} tasks have reported:"
    for plan in stage.plans:
        if len(stage.plans) > 1:
            yield f"{_INDENT}{plan.tasks:,} task{'s' * (plan.tasks != 1)} ran it as:"
        if plan.operators:
            yield from _tree(plan)
        else:
            yield f"{_INDENT}operators: the store does not have this plan any more"


def _tree(plan: BoundOperators) -> Iterator[str]:
    shown = list(_shown(plan.operators))
    columns = [
        ("ROWS", [_count(operator.rows) for operator, _, _ in shown]),
        ("TIME", [seconds(ms) if ms is not None else "" for _, _, ms in shown]),
        ("MEMORY", [_bytes(operator, "peakMemory") for operator, _, _ in shown]),
        ("SPILL", [_bytes(operator, "spillSize") for operator, _, _ in shown]),
    ]
    kept = [(head, cells) for head, cells in columns if any(cells) or head == "ROWS"]
    widths = [max(10 if head == "ROWS" else 8, *map(len, cells)) for head, cells in kept]
    yield _INDENT + "  ".join([*(head.rjust(w) for (head, _), w in zip(kept, widths, strict=True)), "OPERATOR"])
    for number, (operator, prefix, _) in enumerate(shown):
        left = _INDENT + "  ".join(
            [*(cells[number].rjust(w) for (_, cells), w in zip(kept, widths, strict=True)), _prefix(prefix)]
        )
        yield (left + _operator(operator, WIDTH - len(left))).rstrip()


def _shown(operators: Sequence[PlanOperator]) -> Iterator[tuple[PlanOperator, str, float | None]]:
    """Yield the operators that people want to see, what stands before each, and the time of its generated code.

    An only child stands below its parent, without indentation: only where a plan branches, lines move to the right.
    """
    todo: list[tuple[int, str, str, float | None]] = [(0, "", "", None)]
    while todo:
        number, first, rest, codegen_ms = todo.pop()
        operator = operators[number]
        is_seen = not operator.name.startswith(_CODEGEN) and operator.name not in _UNSEEN
        if is_seen:
            yield operator, first, codegen_ms
        elif (time := operator.metric("pipelineTime")) is not None:
            codegen_ms = time.ms
        below = rest if is_seen else first
        children = operator.children
        if len(children) == 1:
            todo.append((children[0], below, rest, None if is_seen else codegen_ms))
            continue
        for child in reversed(children):
            is_last = child == children[-1]
            todo.append((child, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "), None))


def _prefix(branches: str) -> str:
    """Return what stands before an operator; of many branches only the last."""
    return branches if len(branches) <= _MAX_PREFIX else f"… {branches[2 - _MAX_PREFIX :]}"


def _operator(operator: PlanOperator, width: int) -> str:
    """Return what an operator is, cut to *width*, and as many notes as leave room for that."""
    words = _words(operator)
    notes = ""
    for note in _notes(operator):
        if min(len(words), _LEAST_TEXT) + len(notes) + len(note) + 3 <= width:
            notes += f" · {note}"
    return _cut(words, width - len(notes)) + notes


def _words(operator: PlanOperator) -> str:
    text = " ".join(_IDS.sub("", operator.text).split())
    if (scan := _SCAN.match(text)) is not None:
        location = _LOCATION.search(text)
        table = scan["table"] or (location[1] if location is not None else "")
        return " ".join(["Scan", scan["format"], *([table] if table else []), scan["columns"]])
    if operator.name.startswith("Scan stage"):
        return f"Read {operator.name.removeprefix('Scan ')}"
    return text or operator.name


def _notes(operator: PlanOperator) -> Iterator[str]:
    for name, word in _NOTES.items():
        found = operator.metric(name)
        if found is None or not found.value:
            continue
        if name in _COUNTS:
            yield f"{found.value:,} {word if found.value != 1 else word.removesuffix('s')}"
        elif found.type == "size":
            yield f"{size(found.value)} {word}".rstrip()
        elif found.ms >= 1:
            yield f"{word} {seconds(found.ms)}"


def _task_lines(tasks: Sequence[TaskCost]) -> Iterator[str]:
    heads = ("TASK", "TRY", "QUEUED", "RAN", "WAITED", "ROWS", "WROTE", "READ", "SPILL")
    rows = [
        (
            str(task.partition),
            str(task.attempt),
            seconds(task.queued_ms),
            seconds(task.run_ms),
            seconds(task.fetch_ms) if task.fetch_ms else "",
            f"{task.rows:,}",
            size(task.bytes),
            size(task.bytes_in) if task.bytes_in else "",
            size(task.spill_bytes) if task.spill_bytes else "",
        )
        for task in tasks
    ]
    widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
    used = sum(widths) + 2 * len(widths) + len(_INDENT)
    yield _INDENT + "  ".join([*(head.rjust(w) for head, w in zip(heads, widths, strict=True)), "EXECUTOR"])
    for task, row in zip(tasks, rows, strict=True):
        cells = [cell.rjust(w) for cell, w in zip(row, widths, strict=True)]
        yield _INDENT + "  ".join([*cells, _cut(task.executor_id, max(8, WIDTH - used))])


def _counts_rows_only(stage: FinalStage) -> bool:
    found = [operator for plan in stage.plans for operator in plan.operators]
    return bool(found) and not any(metric.type in ("timing", "nsTiming") for each in found for metric in each.metrics)


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _bytes(operator: PlanOperator, name: str) -> str:
    found = operator.metric(name)
    return size(found.value) if found is not None and found.value else ""


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def _wrapped(head: str, text: str) -> Iterator[str]:
    """Yield *text* after *head*, in lines of at most `WIDTH` characters, broken at spaces."""
    line = _INDENT + head
    hang = " " * len(line)
    start = line
    for word in text.split(" "):
        if len(line) + len(word) > WIDTH and line != start:
            yield line.rstrip()
            line = start = hang
        line += word + " "
    yield line.rstrip()
