"""A scripted executor in a process of its own: ``python -m tests.support.processes.troubled_executor SCHEDULERS ID``.

It runs a job of two stages. The first attempt of the first task fails; outputs of the first stage die with the
executor; tasks of the second stage go on until the first stage has run again.
"""

import asyncio
import sys

from onager.protocol import onager_pb2 as pb
from tests.support.fakes.scripted_executor import arrow_stream, executor, failure, identity, plan_outcome, success

WIDTH = 20
RESULTS = 2


async def main(schedulers: str, executor_id: str) -> None:
    def run(task_set: pb.TaskSet, task: pb.TaskAttempt) -> pb.TaskReport | None:
        if task_set.work == pb.PLAN:
            plan = plan_outcome([(WIDTH, RESULTS, "exchange"), (RESULTS, 1, "result")])
            return pb.TaskReport(task=identity(task_set, task), success=pb.TaskSuccess(plan=plan))
        if task_set.output.kind == "result":
            if task_set.stage_attempt == 0:
                return None
            return success(task_set, task, executor_id, inline=arrow_stream([task.partition]))
        if (task_set.stage_attempt, task.partition, task.task_attempt) == (0, 0, 0):
            return failure(task_set, task, "io_error", "the disk is away")
        report = success(task_set, task, executor_id)
        report.success.output.shared = False
        return report

    async with executor(f"ipv4:{schedulers}", executor_id, run):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
