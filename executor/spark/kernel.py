"""Python's interface to the kernel: every call of its Java classes, with typed arguments and results.

No other module names a class of the kernel. Objects that only the JVM can read (sessions, plans and their nodes) are
`JavaObject`; descriptions of work travel as JSON. A call takes 0.1 to 0.3 ms. Exceptions of the JVM are raised as py4j
raises them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from onager.executor.spark.jvm import Jvm, listed

JavaObject = Any
"""An object of the JVM."""
Spec = Mapping[str, Any]
Event = tuple[dict[str, Any], bytes]
"""The outcome of a partition or of a run, and its inline result (empty if there is none)."""

CLASS: Final = "onager.Kernel"
"""The facade of an executor."""
GUARD: Final = "onager.plan.Guard"
FOREIGN_TABLES: Final = "onager.catalog.ForeignTables"
FOREIGN_CATALOG: Final = "onager.catalog.ForeignCatalog"
"""The Spark session extension that keeps SQL from private files and from Java methods."""
REFUSED: Final = "onager.failure.RefusedException"
"""The exception with which the kernel says what it will not do, in words for people."""
CATALOG_MOVED: Final = "onager.catalog.CatalogMoved"
"""The exception with which the kernel says that what a planning has read of the catalog has changed meanwhile."""
CLUSTER_PLUGIN: Final = "onager.jobs.UnwantedTasks"
"""The Spark plugin for a cluster's processes with which a task asks whether it is still wanted."""
_LENGTH_BYTES: Final = 4


def jvm_session(session: SparkSession) -> JavaObject:
    """Return the JVM object of *session*."""
    return session._jsparkSession  # noqa: SLF001  (PySpark has no public way to it)


def jvm_context(session: SparkSession) -> JavaObject:
    """Return the JVM's SparkContext of *session*."""
    return session.sparkContext._jsc.sc()  # noqa: SLF001  (as above)


def answer_promptly(gateway: Any) -> None:
    """Let *gateway* send each answer without delay, even one above 8 KiB."""
    gateway.java_gateway_server.addListener(gateway.jvm.onager.gateway.PromptAnswers())


def check_lookups(session: SparkSession, classes: Iterable[str]) -> None:
    """Raise when Spark lacks a class or method that the kernel looks up by name, or one of the plan nodes *classes*."""
    jvm = Jvm.of(session)
    jvm.java_class(CLASS).check(jvm_session(session), jvm.java_list(sorted(classes)))


def arrow_schema(session: JavaObject, jvm: Jvm, plan: JavaObject, column_names: Iterable[str]) -> bytes:
    """Return the Arrow schema of the physical *plan*'s output, as an IPC message."""
    return bytes(jvm.java_class(CLASS).arrowSchema(session, plan, jvm.java_list(column_names)))


class Kernel:
    """The kernel of one executor: binds stages, runs tasks, serves and reads streams. Thread-safe."""

    def __init__(self, spark: SparkSession, exchange_dir: str, slots: int, writer: str = "") -> None:
        """Start the kernel; names of unfinished files in *exchange_dir* contain *writer*, this incarnation's id."""
        self._jvm = Jvm.of(spark)
        self._java = self._jvm.java_class(CLASS)(jvm_context(spark), exchange_dir, slots, writer)

    def close(self, wait_ms: int = 0) -> int:
        """Wait up to *wait_ms* for tasks to end, release everything, restore the context; return how many still run."""
        return int(self._java.close(wait_ms))

    def describe(self, error: JavaObject) -> dict[str, Any]:
        """Return the fields of the protocol's `Failure` for a Throwable."""
        described: dict[str, Any] = json.loads(self._java.describe(error))
        return described

    # ------------------------------------------------------------ stages and their tasks

    def session(self, base: SparkSession, conf: Mapping[str, str]) -> JavaObject:
        """Return a new session over the context of *base*, with the settings *conf* only."""
        return self._java.session(jvm_session(base), json.dumps(conf))

    def bind(
        self,
        session: JavaObject,
        fragment: bytes,
        spec: Spec,
        leaves: Iterable[JavaObject | None],
        fused: Iterable[bytes] = (),
    ) -> "JavaObject":
        """Return the bound stage of *spec* (Java's `StageSpec`); *leaves* has a plan for each input that is None.

        *fused*: the fragments of the stages that it names as fused.
        """
        made = self._jvm.java_list
        return self._java.bind(session, fragment, json.dumps(spec), made(leaves), made(fused))

    def operators(self, bound: JavaObject) -> list[dict[str, Any]] | None:
        """Return the operators of a bound stage (Java's `BoundPlan.nodes`), or None if its tasks report no metrics."""
        text = str(self._java.operators(bound))
        return json.loads(text) if text else None

    def submit(self, bound: JavaObject, spec: Spec, expression: bytes) -> None:
        """Start partitions of a bound stage; *spec* has the fields of Java's `OutputSpec`, run, partitions, nonces."""
        self._java.submit(bound, json.dumps(spec), expression)

    def cancel(self, run: str, partitions: Iterable[int]) -> None:
        """Stop *partitions* of a run; the others continue."""
        self._java.cancel(run, self._jvm.java_list(partitions))

    def take(self, wait_ms: int) -> list[Event]:
        """Wait up to *wait_ms* for events of runs, and return them in order; partition -1: the run has ended."""
        return _unpacked(bytes(self._java.take(wait_ms)))

    def run_whole(self, session: JavaObject, query: JavaObject, spec: Spec) -> Event:
        """Run the QueryExecution *query* with plain Spark on this thread; *spec*: `OutputSpec`, nonce and metrics.

        With metrics, the event has ``operators`` (Java's `BoundPlan.nodes`) and ``op_metrics``, as Base64.
        """
        (event,) = _unpacked(bytes(self._java.runWhole(session, query, json.dumps(spec))))
        return event

    def readings(self, most: int) -> list[dict[str, Any]]:
        """Return what running tasks, *most* at most, and queries that run whole have read (Java's `Runs.readings`)."""
        found: list[dict[str, Any]] = json.loads(self._java.readings(most))
        return found

    def codegen_ms(self, bound: JavaObject) -> int:
        """Return how long the JVM generated and compiled code while a stage was bound."""
        return int(self._java.codegenMs(bound))

    def jvm_use(self) -> dict[str, int]:
        """Return ``heap_used_bytes``, ``heap_max_bytes``, and ``gc_ms`` since the JVM started."""
        use: dict[str, int] = json.loads(self._java.jvmUse())
        return use

    # ------------------------------------------------------------ job groups and jobs

    def enter_control(self, group: str, description: str, attempt: str) -> None:
        """Put this thread's Spark jobs into the job group *group* until `leave_control`; they log as *attempt*."""
        self._java.enterControl(group, description, attempt)

    def leave_control(self, group: str) -> None:
        """End `enter_control`: this thread's Spark jobs belong to no job group."""
        self._java.leaveControl(group)

    def cancel_control(self, group: str) -> None:
        """Cancel the running and future Spark jobs of *group*, and interrupt its thread."""
        self._java.cancelControl(group)

    def cancel_group(self, group: str) -> None:
        """Cancel the running and future Spark jobs of *group*, such as the broadcasts of a stage."""
        self._java.cancelGroup(group)

    def close_job(self, job_id: str) -> None:
        """Release the broadcasts of a job."""
        self._java.closeJob(job_id)

    def remove_job(self, job_id: str, keep: Iterable[str]) -> None:
        """Remove a job's files, except *keep*, from an exchange directory that is a URI."""
        self._java.removeJob(job_id, self._jvm.java_list(keep))

    def broadcast_use(self) -> tuple[int, int, int]:
        """Return the number of broadcasts held, the number ever started, and the bytes that Spark holds for them."""
        held, begun, size = self._java.broadcastUse()
        return held, begun, size

    def limit_broadcasts(self, size: int) -> None:
        """Limit the broadcasts that stages hold at once to about *size* bytes."""
        self._java.limitBroadcasts(size)

    def who_does_not_share(self, tasks: int) -> list[str]:
        """Return why processes of the cluster do not share the exchange directory; probes with *tasks* tasks."""
        return [str(problem) for problem in listed(self._java.whoDoesNotShare(tasks))]

    # ------------------------------------------------------------ streams

    def open_streams(self, spec: Spec) -> str:
        """Open the stream server with *spec* (of Java's `Streams`); return the address where others read streams."""
        return str(self._java.openStreams(json.dumps(spec)))

    def expect_streams(self, tasks: Spec) -> None:
        """Announce tasks (Java's `StreamedTasks`) that will stream once their stage is bound."""
        self._java.expectStreams(json.dumps(tasks))

    def give_up_streams(self, tasks: Spec, why: str) -> None:
        """Tell the readers of tasks that have not started that they will not start."""
        self._java.giveUpStreams(json.dumps(tasks), why)

    def close_streams(self, job_id: str) -> None:
        """Drop a job's streams, and accept no more of them."""
        self._java.closeStreams(job_id)

    def stop_streams(self) -> None:
        """Stop serving and reading streams."""
        self._java.stopStreams()

    def stream_use(self) -> tuple[int, int, int, int]:
        """Return bytes in memory, bytes spilled so far, tasks that stream, and requests that wait."""
        held, spilled, tasks, requests = self._java.streamUse()
        return held, spilled, tasks, requests


def _unpacked(data: bytes) -> list[Event]:
    """Return the events that the kernel packed: the length of a JSON list, the list, then the inline results."""
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    events = []
    for event in json.loads(data[_LENGTH_BYTES:end]):
        size = event.pop("inline_bytes", 0)
        events.append((event, data[end : end + size]))
        end += size
    return events


class QueryTools:
    """Facts about scripts, and about parsed and analyzed queries."""

    def __init__(self, jvm: Jvm) -> None:
        self._queries = jvm.java_class("onager.plan.Queries")
        self._scripts = jvm.java_class("onager.plan.Scripts")

    def statements(self, script: str) -> list[str]:
        """Return a line for each statement: begin, end, line, column, and its kind.

        That is ``procedure``, ``plain``, or ``analyze:END``, where END is that of the words EXPLAIN ANALYZE.
        """
        return str(self._scripts.statements(script)).splitlines()

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


class PlanTools:
    """Reads physical plans and makes fragments of them, each operation in one call."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._outline = jvm.java_class("onager.plan.Outline")
        self._fragments = jvm.java_class("onager.plan.Fragments")
        self._buckets = jvm.java_class("onager.plan.Buckets")
        self._leaves = jvm.java_class("onager.plan.Leaves")
        self._queries = jvm.java_class("onager.plan.Queries")
        self._fingerprints = jvm.java_class("onager.plan.Fingerprint")

    def outline(self, plan: JavaObject) -> tuple[list[str], Callable[[int], JavaObject]]:
        """Return a line for each node (see Java's `Outline.of`), and a function from a line's index to its node."""
        text, nodes = self._outline.of(plan)
        return str(text).splitlines(), nodes.get

    def expected_rows(self, node: JavaObject) -> int:
        """Return how many rows Spark expected of *node* when it planned it; -1 where it had no idea."""
        return int(self._queries.expectedRows(node))

    def python_functions(self, node: JavaObject) -> list[tuple[str, int, bool]]:
        """Return the Python functions of *node*: name, number of broadcast variables, whether it has an accumulator."""
        lines = [line.split("\t") for line in str(self._outline.pythonFunctions(node)).splitlines()]
        return [(name, int(broadcasts), has_accumulator == "1") for name, broadcasts, has_accumulator in lines]

    def fragment(self, root: JavaObject, cut: Sequence[JavaObject], replacements: Sequence[JavaObject]) -> JavaObject:
        """Return a copy of a plan without code generation, with each node of *cut* replaced."""
        return self._fragments.of(root, self._jvm.java_list(cut), self._jvm.java_list(replacements))

    def finish(self, fragment: JavaObject, target: Path) -> str:
        """Write a fragment to the file *target*, and return it as text."""
        return str(self._fragments.finish(fragment, str(target)))

    def fingerprint(self, fragment: JavaObject, exchange: JavaObject | None) -> str:
        """Return the digest of a fragment, and of how *exchange* distributes its rows; "" if there is none."""
        return str(self._fingerprints.of(fragment, exchange) or "")

    def leaf_fingerprint(self, description: Path) -> str:
        """Return the digest of the leaf that is described in a file; "" if there is none."""
        return str(self._fingerprints.ofLeaf(str(description)) or "")

    def placeholder(self, like: JavaObject, name: str) -> JavaObject:
        """Return the leaf that stands for an input of a stage with the columns of *like*."""
        return self._fragments.placeholder(like, name)

    def placeholder_with_bucket(self, like: JavaObject, name: str) -> JavaObject:
        """Return a placeholder for rows that carry their bucket as a column, and a projection that drops it."""
        return self._buckets.removed(like, name)

    def with_bucket(self, exchange: JavaObject) -> JavaObject:
        """Return the child of *exchange* with a column for each row's bucket."""
        return self._buckets.added(exchange)

    def bucket_expression(self, exchange: JavaObject) -> bytes:
        """Return the serialised expression that gives a row's bucket."""
        return bytes(self._buckets.expression(exchange))

    def ordering(self, exchange: JavaObject) -> bytes:
        """Return the serialised order by which *exchange* divides rows into ranges."""
        return bytes(self._fragments.ordering(exchange))

    def sorted(self, exchange: JavaObject, child: JavaObject) -> JavaObject:
        """Return *child* with each partition sorted by the ordering of the range *exchange*."""
        return self._fragments.sorted(exchange, child)

    def with_child(self, node: JavaObject, child: JavaObject) -> JavaObject:
        """Return *node* with its only child replaced."""
        return self._fragments.withChild(node, child)

    def in_one_task(self, child: JavaObject) -> JavaObject:
        """Return *child* coalesced into one partition."""
        return self._fragments.inOneTask(child)

    def local_limit(self, limit: JavaObject, child: JavaObject) -> JavaObject:
        """Return *child* with a local limit: of each partition, the rows that *limit* above it may need."""
        return self._fragments.localLimit(limit, child)

    def under_runtime_filters(self, scan: JavaObject, leaf: JavaObject, tasks: int) -> JavaObject:
        """Return *leaf*, of *tasks* partitions, below the runtime filters of *scan*."""
        return self._leaves.underRuntimeFilters(scan, leaf, tasks)

    def settings(self, session: JavaObject) -> dict[str, str]:
        """Return the settings of *session*, except static ones, which only a new process can set."""
        return dict(entry.split("\t", 1) for entry in str(self._fragments.settings(session)).split("\0") if entry)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A scan of files, as planned."""

    input_bytes: int
    files: int
    partitions: int
    file_format: str
    root: str


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
        ids, stages = self._jvm.java_list(exchanges), self._jvm.java_list(exchanges.values())
        return str(self._frames.write(session, query, plan, ids, stages, str(target)))

    def most_broadcast(self, session: JavaObject) -> int:
        """Return up to how many bytes Spark broadcasts in *session*; below 0: none."""
        return int(self._jvm.java_class("onager.spark43.Adaptive").mostBroadcast(session))

    def replan(self, session: JavaObject, frame: bytes, begun: Sequence[Spec]) -> "NewPlan":
        """Plan what is left of a query from *frame* in *session*; *begun*: as `Told` of `Replanning`."""
        return NewPlan(self._jvm, self._replanning(session, frame, json.dumps(begun)))


class NewPlan:
    """What is left of a query, planned again."""

    def __init__(self, jvm: Jvm, java: JavaObject) -> None:
        self._jvm = jvm
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
        ids, stages = self._jvm.java_list(exchanges), self._jvm.java_list(exchanges.values())
        return str(self._java.write(ids, stages, str(target)))


class LeafTools:
    """Writes descriptions of plan leaves to files, and rebuilds leaves from them."""

    def __init__(self, jvm: Jvm) -> None:
        self._leaves = jvm.java_class("onager.plan.Leaves")
        self._feeds = jvm.java_class("onager.plan.Feeds")
        self._sources = jvm.java_class("onager.plan.PartitionsScanExec")
        self._paged = jvm.java_class("onager.plan.PagedSources")

    def describe_files(self, scan: JavaObject, target: Path) -> FileFacts:
        """Describe a scan of files in the file *target*."""
        return _file_facts(self._leaves.describeFiles(scan, str(target)))

    def describe_growing(self, scan: JavaObject, target: Path, source: Path, portion: Path) -> FileFacts | None:
        """Describe a scan of files of which some are known, its feed, and these files; None if all are to be listed.

        Each goes to the file that is given for it.
        """
        facts = self._feeds.describe(scan, str(target), str(source), str(portion))
        return None if facts is None else _file_facts(facts)

    def next_portion(self, session: JavaObject, source: bytes, before: bytes, target: Path) -> tuple[int, int, bool]:
        """Find what comes after the portion *before*; return how many tasks read it, how many files, and the end.

        The portion goes to the file *target*.
        """
        tasks, files, ended = str(self._feeds.next(session, source, before, str(target))).split("\t")
        return int(tasks), int(files), ended == "1"

    def describe_source(self, scan: JavaObject, target: Path) -> tuple[int, int, str] | None:
        """Describe a scan of a data source; return bytes, partitions and name, or None if it waits for a subquery."""
        return _source_facts(self._sources.describe(scan, str(target)))

    def describe_growing_source(
        self, scan: JavaObject, target: Path, source: Path, portion: Path
    ) -> tuple[int, int, str] | None:
        """Describe a scan of a data source of which the first partitions are known, its feed, and these partitions.

        Return bytes, the number of these, and the name; None if they are all. Each goes to the file that is given.
        """
        return _source_facts(self._paged.describe(scan, str(target), str(source), str(portion)))

    def describe_rows(
        self, leaf: JavaObject, session: JavaObject, limit_bytes: int, target: Path
    ) -> tuple[int, int] | None:
        """Describe the rows of *leaf*; return bytes and partitions, or None if they exceed *limit_bytes*."""
        facts = self._leaves.describeRows(leaf, session, limit_bytes, str(target))
        return None if facts is None else _two(facts)

    def describe_other(self, leaf: JavaObject, target: Path) -> tuple[int, int]:
        """Describe a range, one row, or nothing; return bytes and partitions."""
        return _two(self._leaves.describeOther(leaf, str(target)))

    def rebuild(self, session: JavaObject, description: bytes) -> JavaObject:
        """Return the leaf that *description* describes, for plans that run in *session*."""
        return self._leaves.rebuild(description, session)

    def rebuild_growing(self, session: JavaObject, description: bytes, portion: bytes, first: int) -> JavaObject:
        """Return the leaf that *description* describes, over *portion*, whose first partition is *first*."""
        return self._feeds.rebuild(description, portion, first, session)


class PagedSources:
    """The Python data sources of a query, which give the first partitions only while it is planned to be cut."""

    def __init__(self, jvm: Jvm, analyzed: JavaObject) -> None:
        """Begin with those in the analyzed query."""
        self._java = jvm.java_class("onager.plan.PagedSources").of(analyzed)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return self._java is not None

    def end(self) -> None:
        """Let them give all of their partitions when they are planned from now on."""
        if self._java is not None:
            self._java.restore()
            self._java = None


def read_growing(jvm: Jvm, session: JavaObject, from_files: int) -> None:
    """Let reads in *session* be growing ones where a directory has at least *from_files* files."""
    jvm.java_class("onager.plan.GrowingReads").enable(session, from_files)


def _file_facts(facts: JavaObject) -> FileFacts:
    size, files, partitions, file_format, root = str(facts).split("\t")
    return FileFacts(int(size), int(files), int(partitions), file_format, root)


def _source_facts(facts: JavaObject | None) -> tuple[int, int, str] | None:
    if facts is None:
        return None
    size, partitions, name = str(facts).split("\t")
    return int(size), int(partitions), name


def _two(facts: Any) -> tuple[int, int]:
    size, partitions = str(facts).split("\t")
    return int(size), int(partitions)


class JavaCatalog:
    """The private copy of the catalog that one planning reads and changes, and a session over it."""

    def __init__(self, base: SparkSession) -> None:
        """Make it with a session like *base*; managed tables lie in the same warehouse."""
        jvm = Jvm.of(base)
        self._java = jvm.java_class("onager.catalog.OnagerCatalog").next(jvm_session(base))
        self._statements = jvm.java_class("onager.catalog.Statements")
        self._writes = jvm.java_class("onager.catalog.TableWrite")
        self._truncation = jvm.java_class("onager.catalog.Truncation")
        self._json = jvm.java_class("onager.values.Json")
        self.session: JavaObject = self._java.session()

    def take(self) -> dict[str, Any] | None:
        """Wait for the next request to read, as Java's `OnagerCatalog.take` describes it; None: there will be none."""
        request = self._java.take()
        return None if request is None else dict(json.loads(request))

    def answer(self, answer: Spec) -> None:
        """Answer the request that was taken last; see Java's `OnagerCatalog.answer`."""
        self._java.answer(json.dumps(answer))

    def end(self) -> None:
        """End all reads: whoever waits for an answer gets an exception."""
        self._java.end()

    def close(self) -> None:
        """End the use of the session."""
        self._java.close()

    def allow_changes(self, *, may: bool) -> None:
        """Set whether statements may change the catalog."""
        self._java.allowChanges(may)

    def is_of_one_revision(self) -> bool:
        """Return whether all that was read was there at once; reads again to find out."""
        return bool(self._java.isOfOneRevision())

    def changes(self) -> dict[str, Any]:
        """Return what has changed; see Java's `Changes`."""
        return dict(json.loads(self._java.changes()))

    def table_write(self, parsed: JavaObject) -> JavaObject:
        """Plan a statement that writes a table; see Java's `TableWrite`."""
        return self._writes.of(self._java, parsed)

    def foreign_write(self, write: JavaObject) -> dict[str, Any]:
        """Return the fields of Java's `ForeignWrite`."""
        return dict(json.loads(self._json.text(write)))

    def truncate(self, parsed: JavaObject) -> None:
        """Change the catalog as a statement that truncates a table; see Java's `Truncation`."""
        self._truncation.run(self._java, parsed)

    def other_catalog(self, parsed: JavaObject) -> str:
        """Return the name of another catalog that a parsed statement names, or ""."""
        return str(self._statements.otherCatalog(self.session, parsed))


class FunctionGateway:
    """A py4j gateway into the JVM for the process of one job's function."""

    def __init__(self, session: SparkSession) -> None:
        """Open a gateway for a function that plans in *session*."""
        jvm, context = Jvm.of(session), session.sparkContext
        accumulator = context._javaAccumulator  # noqa: SLF001 - PySpark hides it
        gateways = jvm.java_class("onager.gateway.FunctionGateway")
        self._java = gateways(jvm_context(session), jvm_session(session), accumulator)

    def place(self) -> dict[str, Any]:
        """Return the gateway's port, its token, and the ids of the objects that the process needs."""
        return {"port": int(self._java.port()), "token": str(self._java.token()), "ids": str(self._java.ids())}

    def frame(self) -> JavaObject:
        """Return the Dataset that the function returned."""
        return self._java.frame()

    def error(self) -> JavaObject:
        """Return the exception of Spark that the function did not catch."""
        return self._java.error()

    def close(self, wait_ms: int) -> int:
        """Stop the process's calls and Spark jobs; return how many still ran after *wait_ms*."""
        return int(self._java.close(wait_ms))


def shown(frame: JavaObject, jvm: Jvm, rows: int, truncate: int, style: str, *, is_query: bool) -> JavaObject:
    """Return a dataset of one text, what `show` prints of *frame*; *style*: ``plain``, ``vertical`` or ``html``.

    If it *is_query*, nothing has run, and it can be distributed.
    """
    shows = jvm.java_class("onager.spark43.Shows")
    return (shows.query if is_query else shows.now)(frame, rows, truncate, style)


def order_of(jvm: Jvm, query: JavaObject) -> tuple[bool, tuple[int, ...], JavaObject]:
    """Return whether an analyzed query has a limit, the positions of its sort columns, and a query that has them all.

    Sort keys that are not in the output are further columns at the end of the returned query.
    """
    facts, wider = jvm.java_class("onager.plan.Orders").of(query)
    kind, places = str(facts).split("\t")
    return kind == "limited", tuple(int(place) for place in places.split(",") if place), wider


class JavaConnect:
    """A session of Spark Connect in the JVM: see Java's `ConnectSession`. Messages of Spark's protocol are bytes."""

    def __init__(self, session: SparkSession, user: str) -> None:
        """Make it of *session*, which is nobody else's."""
        self._jvm = Jvm.of(session)
        self._session = session
        self._java = self._jvm.java_class("onager.spark43.ConnectSession")(jvm_session(session), user)
        self._reads = self._jvm.java_class("onager.plan.ConnectReads")
        self._checkpoints = self._jvm.java_class("onager.plan.Checkpoints")

    def analyze(self, request: bytes) -> bytes:
        """Return the AnalyzePlanResponse to an AnalyzePlanRequest."""
        return bytes(self._java.analyze(request))

    def plan(self, relation: bytes) -> JavaObject:
        """Return the plan of a Relation before its analysis: nothing of it has run, not even a command."""
        return self._java.plan(relation)

    def dataset(self, plan: JavaObject) -> JavaObject:
        """Return the dataset of a plan, which has not run, but for commands in it."""
        return self._java.dataset(plan)

    def execute(self, request: bytes) -> list[bytes]:
        """Carry out an ExecutePlanRequest, and return the ExecutePlanResponses but the last, ResultComplete."""
        return [bytes(response) for response in listed(self._java.execute(request))]

    def reads(self, kind: str, message: bytes) -> set[str]:
        """Return kind and name of what a Command, Relation or AnalyzePlanRequest reads, such as ``view sales``.

        ``*`` stands for all that there is: a statement that shows, or a name that only a run could tell.
        """
        return {str(name) for name in listed(self._reads.of(jvm_session(self._session), kind, message))}

    def keep(self, relation_id: str, folder: str, schema: str) -> None:
        """Have the relation *relation_id* stand for the checkpoint in *folder*, of *schema*, as JSON."""
        self._java.keep(relation_id, self._checkpoints.read(jvm_session(self._session), folder, schema))

    def check_kept(self, schema: str) -> None:
        """Raise Spark's error for a column of *schema*, as JSON, that no checkpoint can have."""
        self._checkpoints.check(jvm_session(self._session), schema)

    def ddl(self, schema: bytes) -> str:
        """Return the columns of a DataType, a struct, as CREATE TABLE has them."""
        return str(self._java.ddl(schema))

    def add_artifact(self, name: str, path: Path) -> None:
        """Take a file into the session under the client's *name*."""
        self._java.addArtifact(name, str(path))

    def use(self, database: str) -> None:
        """Make *database* the current one, which may have been dropped since."""
        self._java.use(database)

    def temporary_views(self) -> set[str]:
        """Return the names of the session's temporary views."""
        return {str(name) for name in listed(self._java.temporaryViews())}

    def close(self) -> None:
        """Forget it; the session stays."""
        self._java.close()


@contextmanager
def files_given(session: SparkSession, digest: str, includes: Sequence[str]) -> Iterator[None]:
    """Give *session*, within the context this thread's, the files of a program: see Java's `ProgramFiles`."""
    jvm = Jvm.of(session)
    java = jvm.java_class("onager.spark43.ProgramFiles")
    java.give(jvm_session(session), digest, jvm.java_list(includes))
    java.enter(jvm_session(session))
    try:
        yield
    finally:
        java.leave()


def connect_settings(session: SparkSession) -> list[dict[str, Any]]:
    """Return ``key``, ``value`` (None: undefined), ``is_fixed`` and ``is_set`` of all settings that sessions have."""
    java = Jvm.of(session).java_class("onager.spark43.ConnectSession")
    found: list[dict[str, Any]] = json.loads(str(java.settings(jvm_session(session))))
    return found


def connect_error(session: SparkSession, error: JavaObject, most: int) -> tuple[str, str, str, bytes]:
    """Return condition, SQL state, message of a Throwable, and a FetchErrorDetailsResponse of at most *most* bytes."""
    java = Jvm.of(session).java_class("onager.spark43.ConnectSession")
    condition, state, message, details = java.describe(error, most)
    return str(condition), str(state), str(message), bytes(details)
