"""The cost of orchestrating a task: ``python -m benchmarks.orchestration --backends leveldb,etcd --json FILE``.

Real schedulers, each a process, over a real store, with real gRPC to executors in processes of their own, whose tasks
do nothing (`benchmarks.bare_executor`). A job is one stage of so many tasks; its plan is given, because the planning
task returns one at once. Plain Spark runs as many tasks that do nothing, in the same run (`plain_spark`).

| figure of a row | what it is |
|---|---|
| ``tasks_per_s`` | tasks over the time from before the submission until the client is notified that the job has ended |
| ``store_writes_per_task`` | transactions and single writes that schedulers committed, by their metrics |
| ``store_bytes_per_task`` | bytes of the values in them |
| ``scheduler_cpu_us_per_task`` | processor time of all schedulers together; also of the executors, and of etcd |
| ``conflicts`` | transactions that found another scheduler to have been first |
| ``first_task_ms_…`` | from before the submission of a job of one task until an executor's worker has that task |
| ``busy_first_task_ms_…`` | the same while a job of many tasks that do nothing occupies every slot |

Small jobs follow each other until a sample has ``--sample-tasks``; figures are medians over ``--repeats`` samples, but
jobs of more than 10 times as many tasks are run once. First tasks are measured once for each cluster.
"""

from typing import Final

SAMPLE_TASKS: Final = 2_000
"""The default minimum of tasks per sample."""
BUSY_TASKS: Final = 30_000
"""Of the job that occupies the slots while others wait."""
EXECUTOR_SLOTS: Final = (128, 128)
PROBES: Final = 100
"""Jobs of one task by which the time to the first task is measured."""
