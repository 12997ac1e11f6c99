"""What kills cost a program of Spark Connect.

Run ``python -m benchmarks.connect_kill --schedulers 3 --runs 50 --json FILE``.

Schedulers on three members of etcd behind HAProxy, two executors, and an unmodified client of PySpark in a process of
its own (`benchmarks.connect_kill.client`), with one session for all runs: settings, a view and a Python function. In
each run something is killed by ``kill -9``, and started again:

| killed | when |
|---|---|
| ``serving`` | the scheduler to which HAProxy passes the client, when a quarter of a result has been read |
| ``another`` | a scheduler that serves none of it, at the same moment |
| ``all`` | all schedulers, at the same moment |
| ``executor`` | one of the executors with its JVM, while the job runs |
| ``serving a running job`` | the scheduler as above, while the job runs |

| figure | what it is |
|---|---|
| ``pause_s`` | while a result is read: the longest time without a row, from the kill on; while a job runs: its \
seconds beyond the median of those undisturbed |
| ``wrong`` | runs whose rows were not the expected ones, each once and in order, or that raised |
| ``not_once`` | tasks with other than one success |
| ``lost`` | of the session, what was not there after a run: settings, view, function, current database |
"""

from typing import Final

READING: Final = ("serving", "another", "all")
RUNNING: Final = ("executor", "serving a running job")
KINDS: Final = ("serving", "executor", "another", "serving a running job", "all")
"""In the order in which they take turns."""
UNDISTURBED_RUNS: Final = 3
