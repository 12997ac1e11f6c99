"""The conditions that a plan must meet before its stages become part of a graph."""

from collections.abc import Collection, Iterator

from onager.execution_graph.events import JobPlanned
from onager.execution_graph.stages import StageSpec, StageWork


def check_stages(stages: tuple[StageSpec, ...], unread: Collection[int] = ()) -> str | None:
    """Return why *stages* cannot be a plan (ids not dense from 1, an input that is no earlier stage, …), or None.

    Those whose ids are in *unread* need no reader.
    """
    return next(_faults_of_stages(stages, unread), None)


def check_plan(event: JobPlanned, *, may_grow: bool = True) -> str | None:
    """Return why the stages, summary and fused output of *event* do not fit together, or None.

    No stage of it may be a growing one unless *may_grow*.
    """
    return next(_faults_of_plan(event, may_grow=may_grow), None)


def _faults_of_stages(stages: tuple[StageSpec, ...], unread: Collection[int] = ()) -> Iterator[str]:
    if not stages:
        yield "a plan needs at least one stage"
    for expected, spec in enumerate(stages, start=1):
        if spec.stage_id != expected:
            yield f"stage {spec.stage_id} stands where stage {expected} was expected"
        if spec.work is StageWork.PLAN:
            yield f"stage {spec.stage_id} is another planning stage"
        if spec.partitions < 0:
            yield f"stage {spec.stage_id} has {spec.partitions} partitions"
        for source in spec.inputs:
            if not 1 <= source.stage_id < spec.stage_id:
                yield f"stage {spec.stage_id} reads stage {source.stage_id}, which is not an earlier one"
    yield from _faults_of_steps(stages)
    yield from _faults_of_feeds(stages, unread)
    read = {stage_id for spec in stages for stage_id in spec.sources}
    for spec in stages[:-1]:
        if spec.stage_id not in read and spec.stage_id not in unread and spec.work is not StageWork.STEP:
            yield f"stage {spec.stage_id} is read by no other, and is not the last"


def _faults_of_feeds(stages: tuple[StageSpec, ...], unread: Collection[int]) -> Iterator[str]:
    feeds = {spec.stage_id for spec in stages if spec.work is StageWork.FEED}
    fed = [spec.feed.stage_id for spec in stages if spec.feed is not None]
    if len({*fed}) < len(fed) or not {*fed} <= feeds <= {*fed, *unread}:
        yield f"the feeds are stages {sorted(feeds)}, and growing stages get partitions from stages {sorted(fed)}"
    for spec in stages:
        if spec.work is StageWork.FEED and spec.inputs:
            yield f"stage {spec.stage_id} is a feed, and reads other stages"
        if any(source.stage_id in feeds for source in spec.inputs):
            yield f"stage {spec.stage_id} reads the output of a feed"
        if spec.feed is not None and (spec.work is not StageWork.QUERY or spec.feed.stage_id >= spec.stage_id):
            yield f"stage {spec.stage_id} cannot get partitions from stage {spec.feed.stage_id}"
        if spec.feed is not None and spec.feed.partitions != spec.partitions:
            yield f"stage {spec.stage_id} has {spec.partitions} partitions, and was given {spec.feed.partitions}"


def _faults_of_steps(stages: tuple[StageSpec, ...]) -> Iterator[str]:
    """Yield what is wrong with the steps of a script, or a program, each of which has no other stages."""
    for spec in stages if any(each.work is StageWork.STEP for each in stages) else ():
        if spec.work is not StageWork.STEP:
            yield f"stage {spec.stage_id} of a script is no step"
        if spec.partitions != 1 or spec.plan_digest is None or spec.output.kind != "control":
            yield f"stage {spec.stage_id} is not what a step must be"
    for spec in stages:
        is_alone = len(stages) == 1 and spec.partitions == 1 and spec.output.kind == "control"
        if spec.work is StageWork.PROGRAM and not is_alone:
            yield f"stage {spec.stage_id} is a program, and not the only task of its job"


def _faults_of_plan(event: JobPlanned, *, may_grow: bool) -> Iterator[str]:
    yield from _faults_of_stages(event.stages)
    if not may_grow and any(spec.feed is not None for spec in event.stages):
        yield "a job whose stages run together cannot have growing ones"
    for spec in event.stages:
        if spec.work is StageWork.FEED and spec.partitions != 1:
            yield f"stage {spec.stage_id} is a feed, and begins with {spec.partitions} tasks"
        if spec.feed is not None and spec.feed.has_ended:
            yield f"the feed of stage {spec.stage_id} has ended before it began"
    result = event.summary.result_stage_id
    works = (StageWork.QUERY, StageWork.STEP)
    if not 1 <= result <= len(event.stages) or event.stages[result - 1].work not in works:
        yield f"stage {result} cannot be the one with the result"
    if event.fused_output is not None and event.stages[0].work is not StageWork.QUERY:
        yield "a step cannot have been run where it was planned"
    if event.fused_output is not None and event.stages[0].partitions != 1:
        yield f"a fused stage has one partition, not {event.stages[0].partitions}"
