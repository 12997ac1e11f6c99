"""What one principal can take from another one: ``python -m benchmarks.floods --json FILE``.

A real scheduler with tokens and an executor of two slots. A client asks for ``select 1``, by Onager's client and by
PySpark, and adds a small file to its session: first alone, then beside each flood. Another principal makes the floods,
from a process of its own:

| flood | what it is |
|---|---|
| ``uploads`` | 16 streams of AddArtifacts that send nothing |
| ``waiting`` | 1,000 streams of ExecutePlan: one never-ending query runs, the others wait for it |
| ``queries`` | 1,000 streams of ExecutePlan with a short query; as soon as one has its rows, it asks for another |
| ``commands`` | the same with the command that ``spark.sql`` is, which an executor's Spark analyses |
| ``archives`` | archives of less than a MB, two at a time: half of them become 400 MB of files, which a function \
reads, and half have a name of 600 MB, to be refused |

| figure | what it is |
|---|---|
| ``seconds`` | of each request: the median, the longest, and how many there were |
| ``refused`` | streams, or archives, of the flood that were refused at once, by the reason; they are tried again \
every second |
| ``ended`` | streams, or archives, that ended later, and how |
| ``scheduler_rss_mb``, ``agent_rss_mb`` | memory of the scheduler, and of the executor's Python: before, at most, at \
the end |
| ``executor_lived`` | whether agent and JVM are the same processes as before |
| ``recovered_s`` | after the end of the flood, until ``select 1`` takes no longer than twice its longest quiet time |
"""

from typing import Final

FLOODS: Final = ("uploads", "waiting", "queries", "commands", "archives")
