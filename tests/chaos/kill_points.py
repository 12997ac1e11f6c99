"""Points in the log of a job at which a process is killed, jobs for that, and what their logs have to look like."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.tpch import query_text
from onager.client.events import JobEvent
from onager.protocol import onager_pb2 as pb

REPLANNED: Final = "stage_replanned"
LAID_OUT: Final = "stage_laid_out"
When = Literal["before", "at", "after"]
WHEN: Final[tuple[When, ...]] = ("before", "at", "after")

_CUT: Final[dict[str, object]] = {
    "onager.fusion.maxBytes": 0,
    "spark.sql.shuffle.partitions": 3,
    "onager.adaptive": "off",
}
ADAPTIVE: Final = _CUT | {"onager.adaptive": "on", "spark.sql.autoBroadcastJoinThreshold": "20k"}
FORCED: Final = ADAPTIVE | {"onager.adaptive": "force"}
MERGED: Final = ADAPTIVE | {"onager.adaptive.fuseBytes": "0"}

_SIDES: Final = """
SELECT o_orderpriority, count(*) AS n, sum(q) AS q
FROM orders JOIN (SELECT max(l_orderkey) AS k, sum(l_quantity) AS q FROM lineitem GROUP BY l_partkey, l_suppkey)
    ON o_orderkey = k
WHERE {} GROUP BY o_orderpriority ORDER BY o_orderpriority
"""
"""What is exchanged of lineitem for the join waits for another exchange, so orders are done before it begins."""
FEW: Final = _SIDES.format("o_custkey % 300 = 1")
NOTHING: Final = _SIDES.format("o_custkey % 3 = 0")
"""In TPC-H, no such customer has an order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A query over TPC-H, and how it runs."""

    text: str
    conf: dict[str, object]


SAMPLES: Final[dict[str, dict[str, Sample]]] = {
    REPLANNED: {
        "few": Sample(FEW, ADAPTIVE),
        "nothing": Sample(NOTHING, ADAPTIVE),
        "forced": Sample(query_text(5), FORCED),
    },
    LAID_OUT: {
        "fused": Sample(query_text(3), ADAPTIVE),
        "merged": Sample(FEW, MERGED),
        "merged again": Sample(query_text(5), MERGED),
    },
}
"""For each kind of event, by name, the jobs that have such events."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point in a job's log: before, at or after an event of a type."""

    type: str
    when: When
    number: int = 0
    """How many such events, or (before a layout) successes, are left alone."""

    def is_reached(self, events: Sequence[JobEvent]) -> bool:
        """Return whether the last one of *events*, which begin with the job's first, is that point.

        Before a new plan: its task is launched. Before a layout: a task has succeeded whose stage others read. After
        either: the next task is launched, or has succeeded.
        """
        last, types = events[-1], Counter(event.type for event in events)
        if self.when == "at":
            return last.type == self.type and types[self.type] == self.number + 1
        if self.when == "after":
            return last.type in {"tasks_launched", "task_succeeded"} and types[self.type] > self.number
        if self.type == LAID_OUT:
            return last.type == "task_succeeded" and types[last.type] == self.number + 1
        begun = [event.fields["replan_id"] for event in events if event.type == "replan_begun"]
        return last.type == "tasks_launched" and last.fields["stage_id"] in begun[self.number : self.number + 1]


def executor_at(events: Iterable[JobEvent]) -> str:
    """Return the executor of which the last of *events* tells that names one."""
    return [str(event.fields["executor_id"]) for event in events if event.fields.get("executor_id")][-1]


def ran_again(events: Iterable[JobEvent], stages: Iterable[pb.StageInfo]) -> list[str]:
    """Return which tasks ran again after they had succeeded, or not once, by a job's log and by its *stages*."""
    found: list[str] = []
    done: set[tuple[int, int]] = set()
    for event in events:
        if event.type == "task_succeeded":
            done.add((event.fields["stage_id"], event.fields["partition"]))
        elif event.type in {"tasks_launched", "tasks_speculated"}:
            again = {(event.fields["stage_id"], partition) for partition, _ in event.fields["tasks"]} & done
            found += [f"task {partition} of stage {stage_id} was launched again" for stage_id, partition in again]
    for stage in stages:
        for task in stage.tasks:
            if task.successes > 1 or (stage.state == "successful" and task.successes != 1):
                found.append(f"task {task.partition} of stage {stage.stage_id} succeeded {task.successes} times")
    return found


def outcomes(events: Iterable[JobEvent]) -> dict[int, list[str]]:
    """Return by re-plan what the log says became of it: nothing where its executor was lost before it had planned."""
    found: dict[int, list[str]] = {}
    for event in events:
        fields: dict[str, Any] = event.fields
        if event.type == "replan_begun":
            found[fields["replan_id"]] = []
        elif event.type == REPLANNED:
            found[fields["replan_id"]].append("taken" if fields.get("stages") else "kept")
        elif event.type == "replan_given_up":
            found[fields["replan_id"]].append("given up")
    return found
