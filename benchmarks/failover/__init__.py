"""What the death of a scheduler costs a running job: ``python -m benchmarks.failover --kills 30 --json FILE``.

Three schedulers on one etcd; executors without Spark (`benchmarks.bare_executor`), whose tasks take a fixed time each,
so that every lost moment shows. A job runs; half-way, give or take, one scheduler is killed by ``kill -9``: in turn
the one that comes first for the job, the one with most executors, the one that the client watches through, and one by
lot. It is started again, and listed by all, before the next job.

| figure | what it is |
|---|---|
| ``extra_s_…`` | the job's time by its record, less the median of the same job undisturbed, which runs in between |
| ``reported_extra_s_…`` | the same by the client's clock, from before the submission until it is notified of the end |
| ``finished_tasks_rerun`` | executions that ended beyond the first of each partition, by what executors wrote down |
| ``wrong_results`` | jobs that did not succeed, or whose rows are not one for each partition |
"""

from typing import Final

SCHEDULERS: Final = 3
EXECUTOR_SLOTS: Final = (2, 2, 2, 2)
TASKS: Final = 160
TASK_MS: Final = 100
UNDISTURBED_EVERY: Final = 3
"""Of this many jobs, one runs without faults."""
