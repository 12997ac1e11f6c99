"""Where a job's seconds went, from what the scheduler and the job's own tasks noted."""

from dataclasses import dataclass

from onager.protocol import onager_pb2 as pb


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of the time from submission to the last row at the client, in seconds; they add up to it."""

    planning_s: float
    """In the planning task; of a query that was not cut, the same without running it."""
    running_s: float
    """In tasks, over all slots."""
    waiting_s: float
    """What slots spent without a task: launches, reports, binding, broadcasts, too few or uneven tasks."""
    fetching_s: float
    """From the job's end to the last row at the client."""


def breakdown(progress: pb.JobProgress, total_s: float, slots: int) -> Breakdown:
    """Return where the *total_s* of a successful job on *slots* went."""
    planning, *others = progress.stages
    stages = [stage for stage in others if stage.work == "query"]
    tasks_s = sum(stage.metrics.run_ms for stage in stages) / 1000
    job_s = (progress.ended_ms - progress.submitted_ms) / 1000
    if planning.metrics.run_ms:
        planning_s = planning.metrics.run_ms / 1000
        running_s = tasks_s / slots
    else:  # run as a whole by the planning task, which notes no time of its own then
        running_s = tasks_s
        planning_s = (planning.ended_ms - planning.started_ms) / 1000 - running_s
    return Breakdown(
        planning_s=planning_s,
        running_s=running_s,
        waiting_s=job_s - planning_s - running_s,
        fetching_s=total_s - job_s,
    )
