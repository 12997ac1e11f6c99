"""A job whose scheduler and executor are killed while it runs: what ``make demo`` ends with."""

from pathlib import Path
from typing import Final

import psutil

import onager
from onager.client.progress import JobProgress

_TASKS: Final = 12
_QUERY: Final = """
SELECT id % 10 AS k, sum(crc32(sha2(repeat(cast(id AS string), 100), 512))) AS s
FROM range(2400000) GROUP BY k ORDER BY k
"""
_CONF: Final = {"onager.fusion.maxBytes": "0", "spark.sql.leafNodeDefaultParallelism": str(_TASKS)}
_KILLED_AFTER: Final = {"scheduler": 2, "executor": 6}
"""Each is killed when so many tasks of the first stage are done."""


class _Killer:
    """Kills the children of a standalone process, each once."""

    def __init__(self, standalone_pid: int) -> None:
        self._standalone = psutil.Process(standalone_pid)
        self._left = dict(_KILLED_AFTER)

    def look(self, progress: JobProgress) -> None:
        """Kill what is due now."""
        done = progress.stages[1].successful if len(progress.stages) > 1 else 0
        for name, after in [*self._left.items()]:
            if done >= after:
                del self._left[name]
                for child in self._standalone.children():
                    if name in child.cmdline():
                        print(f"demo: {done} of {_TASKS} tasks are done: kill -9 the {name}", flush=True)
                        child.kill()


def run(client: onager.OnagerClient, standalone_pid: int, picture: Path) -> None:
    """Run a job through the death of its scheduler and of its executor, and draw what happened to it."""
    job = client.sql(_QUERY, conf=_CONF, name="a job whose scheduler and executor are killed")
    job.wait(on_progress=_Killer(standalone_pid).look)
    rows = job.to_arrow().num_rows
    picture.parent.mkdir(parents=True, exist_ok=True)
    job.export("timeline-svg", picture)
    print(f"demo: it gave its {rows} rows all the same; what happened to it is drawn in {picture}", flush=True)
