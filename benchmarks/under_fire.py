"""Jobs whose scheduler and executor are killed while they run: what ``make demo`` ends with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

import onager
from onager.cli.output import print_table
from onager.client.progress import JobProgress

_TASKS: Final = 12
_QUERY: Final = """
SELECT id % 10 AS k, sum(crc32(sha2(repeat(cast(id AS string), 100), 512))) AS s
FROM range(2400000) GROUP BY k ORDER BY k
"""
_CONF: Final = {"onager.fusion.maxBytes": "0", "spark.sql.leafNodeDefaultParallelism": str(_TASKS)}
_KILLED_AFTER: Final = {"scheduler": 2, "executor": 6}
"""Each is killed when so many tasks of the first stage are done."""
_STEPS: Final = """
CREATE TABLE revenue (customer BIGINT, revenue DECIMAL(18, 2)) USING parquet PARTITIONED BY (year INT);
CREATE TEMPORARY VIEW lines AS
  SELECT o_custkey, l_extendedprice * (1 - l_discount) AS price, year(o_orderdate) AS year
  FROM lineitem JOIN orders ON l_orderkey = o_orderkey;
INSERT INTO revenue SELECT o_custkey, sum(price), year FROM lines WHERE year <= 1995 GROUP BY o_custkey, year;
INSERT INTO revenue SELECT o_custkey, sum(price), year FROM lines WHERE year > 1995 GROUP BY o_custkey, year;
CREATE TABLE best AS
  SELECT customer, sum(revenue) AS revenue FROM revenue GROUP BY customer ORDER BY revenue DESC LIMIT 3;
SELECT c_name, revenue FROM best JOIN customer ON c_custkey = customer ORDER BY revenue DESC
"""
_STEPS_KILLED_AFTER: Final = {"scheduler": 1, "executor": 2}
"""Each is killed when so many steps are done."""


class _Killer:
    """Kills the children of a standalone process, each once."""

    def __init__(self, standalone_pid: int, after: Mapping[str, int]) -> None:
        self._standalone = psutil.Process(standalone_pid)
        self._left = dict(after)

    def look(self, progress: JobProgress) -> None:
        """Kill what is due now."""
        steps = [stage for stage in progress.stages if stage.work == "step"]
        stages = steps or progress.stages[1:2]
        done, of = sum(stage.successful for stage in stages), sum(stage.partitions for stage in stages)
        for name, after in [*self._left.items()]:
            if done >= after:
                del self._left[name]
                for child in self._standalone.children():
                    if name in child.cmdline():
                        what = "steps" if steps else "tasks"
                        print(f"demo: {done} of {of} {what} are done: kill -9 the {name}", flush=True)
                        child.kill()


def run(client: onager.OnagerClient, standalone_pid: int, picture: Path) -> None:
    """Run a job through the death of its scheduler and of its executor, and draw what happened to it."""
    job = client.sql(_QUERY, conf=_CONF, name="a job whose scheduler and executor are killed")
    job.wait(on_progress=_Killer(standalone_pid, _KILLED_AFTER).look)
    rows = job.to_arrow().num_rows
    picture.parent.mkdir(parents=True, exist_ok=True)
    job.export("timeline-svg", picture)
    print(f"demo: it gave its {rows} rows all the same; what happened to it is drawn in {picture}", flush=True)


def run_steps(client: onager.OnagerClient, standalone_pid: int, tables: Mapping[str, str]) -> None:
    """Run a script that makes and fills tables through the same, and tell what its steps did."""
    job = client.sql(_STEPS, views=dict(tables), conf={"onager.fusion.maxBytes": "0"}, name="a script of steps")
    for step in job.wait(on_progress=_Killer(standalone_pid, _STEPS_KILLED_AFTER).look).stages:
        if step.work == "step":
            print(f"demo: {step.name}: {step.state}, {(step.ended_ms - step.started_ms) / 1000:.1f} s", flush=True)
    rows = job.to_arrow()
    print_table(rows.schema.names, [[str(value) for value in row.values()] for row in rows.to_pylist()])
