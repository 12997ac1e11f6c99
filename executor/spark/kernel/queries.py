"""Parsed and analysed queries: facts about them, what `show` prints, and how the rest of one is planned again."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onager.executor.spark.jvm import JavaObject, Jvm


def statements_of(jvm: Jvm, script: str) -> list[dict[str, Any]]:
    """Return where each statement is; see `Statement` of Java's `Scripts`."""
    return list(json.loads(jvm.java_class("onager.plan.Scripts").statements(script)))


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement as it was parsed, and all that it is judged by; see `Facts` of Java's `Parser`."""

    java: JavaObject
    place: int
    kind: str
    named: str
    below: str
    is_command: bool
    modifies: str
    query_modifies: str
    view: str
    is_local: bool
    has_files: bool
    assigned: str
    has_value: bool
    directory: dict[str, Any] | None

    def plan(self) -> JavaObject:
        """Return its plan."""
        return self.java.plan(self.place)

    def is_view(self) -> bool:
        """Return whether `view` is now a temporary view of the session."""
        return bool(self.view) and bool(self.java.hasView(self.view))

    def reads_rows(self) -> bool:
        """Return whether the value that it gives, a SET VAR, comes from a table, a view or files; Spark's errors."""
        return bool(self.java.readsRows(self.place))

    def rows(self) -> JavaObject:
        """Return the dataset of it, or of the query that its directory gets; a command runs now."""
        return self.java.rows(self.place)


class JavaParser:
    """Parses statements in a session: see Java's `Parser`."""

    def __init__(self, jvm: Jvm, session: JavaObject, modifying: Collection[str]) -> None:
        """*modifying*: the classes of plans that change data."""
        self._java = jvm.java_class("onager.plan.Parser")(session, ",".join(sorted(modifying)))

    def parse(self, text: str, parameters: JavaObject = None) -> Parsed:
        """Return what *text* says, with *parameters*, a ParameterContext, in its places; Spark's errors."""
        return Parsed(self._java, **json.loads(self._java.parse(text, parameters)))


class QueryTools:
    """Facts about parsed and analyzed queries."""

    def __init__(self, jvm: Jvm) -> None:
        self._queries = jvm.java_class("onager.plan.Queries")

    def named(self, plan: JavaObject) -> JavaObject:
        """Return *plan* with each IDENTIFIER(…) resolved."""
        return self._queries.named(plan)

    def is_command(self, plan: JavaObject) -> bool:
        """Return whether a parsed statement is a command rather than a query."""
        return bool(self._queries.isCommand(plan))

    def first_of(self, plan: JavaObject, classes: Collection[str]) -> str:
        """Return the simple class name of the first node in *classes*, or ""."""
        return str(self._queries.firstOf(plan, ",".join(sorted(classes))))

    def input_bytes(self, plan: JavaObject, *, is_optimized: bool) -> int:
        """Return how many bytes a query reads; -1 if a source does not say.

        Unless it *is_optimized*, partitioned tables count as very large: it is not known which partitions it needs.
        """
        return int(self._queries.inputBytes(plan, is_optimized))

    def facts(self, frame: JavaObject) -> dict[str, Any]:
        """Return what the dataset *frame* gives and reads; see `Facts` of Java's `Queries`."""
        return dict(json.loads(self._queries.facts(frame)))

    def planned(self, session: JavaObject, frame: JavaObject) -> JavaObject:
        """Return the dataset *frame* as it is planned under the current settings of *session*."""
        return self._queries.planned(session, frame)

    def needed_bytes(self, frame: JavaObject) -> int:
        """Return how many bytes of its input *frame* needs, once it is optimized; -1 if a source does not say."""
        return int(self._queries.neededBytes(frame))

    def executed(self, frame: JavaObject) -> JavaObject:
        """Return the physical plan of the dataset *frame*."""
        return self._queries.executed(frame)


def order_of(jvm: Jvm, query: JavaObject) -> tuple[bool, tuple[int, ...], JavaObject]:
    """Return whether an analyzed query has a limit, the positions of its sort columns, and a query that has them all.

    Sort keys that are not in the output are further columns at the end of the returned query.
    """
    facts, wider = jvm.java_class("onager.plan.Orders").of(query)
    kind, places = str(facts).split("\t")
    return kind == "limited", tuple(int(place) for place in places.split(",") if place), wider


def shown(frame: JavaObject, jvm: Jvm, rows: int, truncate: int, style: str, *, is_query: bool) -> JavaObject:
    """Return a dataset of one text, what `show` prints of *frame*; *style*: ``plain``, ``vertical`` or ``html``.

    If it *is_query*, nothing has run, and it can be distributed.
    """
    shows = jvm.java_class("onager.spark43.Shows")
    return (shows.query if is_query else shows.now)(frame, rows, truncate, style)


class FrameTools:
    """Writes what queries can be planned again from, and plans them again."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._frames = jvm.java_class("onager.plan.Frame")
        self._replanning = jvm.java_class("onager.plan.Replanning")

    def write(
        self, session: JavaObject, query: JavaObject, plan: JavaObject, exchanges: Mapping[int, int], target: Path
    ) -> str:
        """Write the frame of *query*, planned as *plan*, to *target*; return why there can be none, or "".

        *exchanges* has the stages that exchanges end, by these' plan ids.
        """
        return str(self._frames.write(session, query, plan, json.dumps(exchanges), str(target)))

    def most_broadcast(self, session: JavaObject) -> int:
        """Return up to how many bytes Spark broadcasts in *session*; below 0: none."""
        return int(self._jvm.java_class("onager.spark43.Adaptive").mostBroadcast(session))

    def replan(self, session: JavaObject, frame: bytes, begun: Sequence[Mapping[str, Any]]) -> "NewPlan":
        """Plan what is left of a query from *frame* in *session*; *begun*: each as Java's `Replanning.BegunStage`."""
        return NewPlan(self._replanning(session, frame, json.dumps(begun)))


class NewPlan:
    """What is left of a query, planned again."""

    def __init__(self, java: JavaObject) -> None:
        self._java = java

    @property
    def plan(self) -> JavaObject:
        """The physical plan."""
        return self._java.plan()

    def facts(self) -> dict[str, Any]:
        """Return what is to be known about it; see `Replanning.facts`."""
        return dict(json.loads(str(self._java.facts())))

    def write(self, exchanges: Mapping[int, int], target: Path) -> str:
        """Write its frame; see `FrameTools.write`."""
        return str(self._java.write(json.dumps(exchanges), str(target)))
