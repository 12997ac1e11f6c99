"""What the blocks of README and docs/performance.md say, by the figures of one run: see docs/figures.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.figures import command

Cells = Sequence[object]


class NotThereError(LookupError):
    """A benchmark was not run, or failed."""


class Figures:
    """The file, and what was quoted of it."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.quoted: list[str] = []

    def __getitem__(self, name: str) -> Any:
        """Return the figures of a benchmark."""
        found = self.content.get("measured", {}).get(name, {})
        if "figures" not in found:
            why = "failed" if "failed" in found else "not measured yet"
            raise NotThereError(f"{why} (`{command(name)}`)")
        self.quoted.append(found["command"])
        return found["figures"]

    def rows(self, names: Mapping[str, str], cells: Callable[[Any], Cells]) -> Iterator[Cells]:
        """Yield a row for each benchmark, which begins with its label."""
        for name, label in names.items():
            try:
                yield (label, *cells(self[name]))
            except NotThereError as why:
                yield (label, why)


def table(*rows: Cells) -> str:
    """Return a table whose first row is its head."""
    width = len(rows[0])
    lines = [f"| {' | '.join(str(cell) for cell in (*row, *[''] * (width - len(row))))} |" for row in rows]
    return "\n".join((lines[0], "|" + "---|" * width, *lines[1:]))


def run(figures: Figures) -> str:
    """Return when, where and of what the figures are."""
    content = figures.content
    if not content:
        return "*Nothing was measured yet: `make figures`.*"
    machine = content["machine"]
    text = (
        f"Measured on {content['date']} at commit `{content['commit'][:10]}`, in one run: {machine['cores']} cores "
        f"({machine['processor']}), Linux {machine['kernel']}, {machine['file_system']} "
        f"({machine['fdatasync_ms']:.2f} ms a sync), Python {machine['python']}, etcd {machine['etcd']}."
    )
    busy = max((found["busy_percent"] for found in content["measured"].values()), default=0.0)
    text += f" Before each benchmark at most {busy:.0f} % of the processor was in use."
    if content["why_not_quiet"]:
        text += f" **Read with care**: {'; '.join(content['why_not_quiet'])}."
    return text


def readme(figures: Figures) -> str:
    """Return the few figures of the first page."""
    if not figures.content:
        return run(figures)
    rows = {
        "tpch-0.1": ("TPC-H at SF 0.1, beside plain Spark", _beside),
        "tpch-0.1-cut": ("TPC-H at SF 0.1, every exchange cut", _beside),
        "tpch-1": ("TPC-H at SF 1", _beside),
        "tpch-1-cut": ("TPC-H at SF 1, every exchange cut", _beside),
        "tpch-10": ("TPC-H at SF 10, five queries with large exchanges", _beside),
        "orchestration": ("Tasks that do nothing, durable on etcd", _tasks),
        "failover": ("The scheduler of a running job is killed, of three", _kill),
        "connect-latency": ("`SELECT 1` by PySpark, over Spark Connect", _select),
    }
    found = [next(figures.rows({name: label}, cells)) for name, (label, cells) in rows.items()]
    return run(figures) + "\n\n" + table(("", ""), *found)


def _beside(found: Any) -> Cells:
    return (f"{found['ratio']:.2f} times plain Spark's time ({found['onager_total_s']:.1f} s)",)


def _tasks(found: Any) -> Cells:
    keys = ("backend", "mode", "schedulers", "tasks")
    row = next(row for row in found["rows"] if tuple(row[key] for key in keys) == ("etcd", "pull", 1, 100_000))
    return (f"{row['tasks_per_s']:,.0f} tasks/s, {row['scheduler_cpu_us_per_task']:.0f} µs of a scheduler for each",)


def _kill(found: Any) -> Cells:
    return (f"{found['extra_s_p50']:.2f} s more, at most {found['extra_s_max']:.2f} s",)


def _select(found: Any) -> Cells:
    row = next(row for row in found["rows"] if row["request"] == "sql().collect")
    return (f"{row['onager_ms_p50']:.0f} ms; {row['spark_ms_p50']:.0f} ms by Spark's own server",)


def tpch(figures: Figures) -> str:
    """Return the sums of TPC-H."""

    def cells(found: Any) -> Cells:
        sums = (f"{found[key]:.1f}" for key in ("onager_total_s", "spark_total_s"))
        parts = (f"{found['parts'][f'{part}_s']:.1f}" for part in ("planning", "running", "waiting", "fetching"))
        equal = f"{found['equal']} of {len(found['queries'])}"
        return (equal, *sums, f"{found['ratio']:.2f}", *parts, f"{found['overhead_ms_per_stage']:.0f} ms")

    names = {
        "tpch-0.1": "SF 0.1",
        "tpch-0.1-cut": "SF 0.1, cut",
        "tpch-1": "SF 1",
        "tpch-1-cut": "SF 1, cut",
        "tpch-10": "SF 10, five queries",
    }
    head = ("seconds", "equal", "Onager", "Spark", "ratio", "planning", "running", "waiting", "fetching")
    return table((*head, "beyond Spark, a stage"), *figures.rows(names, cells))


def tpch_queries(figures: Figures) -> str:
    """Return the queries of TPC-H at SF 1."""
    default, cut = figures["tpch-1"]["queries"], figures["tpch-1-cut"]["queries"]
    rows = [(row["query"], *_sides(row), *_sides(other)) for row, other in zip(default, cut, strict=True)]
    return table(("query", "Onager, s", "Spark, s", "ratio", "cut: Onager, s", "Spark, s", "ratio"), *rows)


def tpch_large(figures: Figures) -> str:
    """Return the queries of TPC-H at SF 10."""
    rows = [
        (row["query"], *_sides(row), f"{row['exchange_bytes'] / 1e6:,.0f}") for row in figures["tpch-10"]["queries"]
    ]
    return table(("query", "Onager, s", "Spark, s", "ratio", "MB through exchanges"), *rows)


def _sides(row: Any) -> Cells:
    return f"{row['onager_s']:.2f}", f"{row['spark_s']:.2f}", f"{row['onager_s'] / row['spark_s']:.2f}"


def exchange(figures: Figures) -> str:
    """Return the same rows over each exchange."""
    names = {"spark": "Spark's shuffle, `local[2]`", "durable": "durable (files)", "streaming": "streaming"}
    rows = [
        (
            names[row["exchange"]],
            f"{row['seconds']:.2f}",
            *(f"{row[key]:.0f}" for key in ("mb_per_s", "fixed_ms", "peak_mb")),
        )
        for row in figures["exchange"]["rows"]
    ]
    return table(("exchange", "seconds", "MB/s", "fixed, ms", "JVMs grew by, MB"), *rows)


def streams(figures: Figures) -> str:
    """Return queries over files and over streams."""
    found = figures["streams"]
    rows = [
        (row["query"], *(f"{row[way]['total_s']:.1f}" for way in ("durable", "streaming"))) for row in found["queries"]
    ]
    sums = ("all", *(f"{found['totals_s'][way]:.1f}" for way in ("durable", "streaming")))
    return table(("query", "files, s", "streams, s"), *rows, sums)


def adaptive(figures: Figures) -> str:
    """Return statements that gain by adapting."""
    found = figures["adaptive"]
    rows = []
    for name, label in (("skew", "all keys"), ("few", "one key, by a filter that no statistics foretell")):
        off, on = found[name]["off"], found[name]["on"]
        seconds = (f"{each:.1f}" for each in (found[name]["spark_s"], off["best_s"], on["best_s"]))
        longest = f"{off['longest_to_median']:.1f}, {on['longest_to_median']:.1f}"
        rows.append(
            (label, *seconds, f"{on['ratio']:.2f}", longest, f"{off['exchange_mb']:,.0f}, {on['exchange_mb']:,.0f}")
        )
    head = ("", "Spark, s", "`off`, s", "`on`, s", "ratio of `on`", "longest task to median: `off`, `on`")
    return table((*head, "MB through exchanges: `off`, `on`"), *rows)


def adaptive_turns(figures: Figures) -> str:
    """Return statements that were not made to gain by adapting."""
    found = figures["adaptive-turns"]
    rows = [
        (
            label,
            f"{found[suite]['equal']} of {len(found[suite]['statements'])}",
            *(f"{found[suite][key]:.1f}" for key in ("off_s", "on_s")),
            f"{found[suite]['ratio']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in found[suite]["round_ratios"]),
            f"{found[suite]['worst']:.2f}",
        )
        for suite, label in (("tpch", "TPC-H, SF 1"), ("analytics", "drawn reports, cut"))
    ]
    return table(("", "equal", "`off`, s", "`on`, s", "ratio", "ratio of each round", "worst statement"), *rows)


def reuse(figures: Figures) -> str:
    """Return a job that takes the outputs of another."""
    found = figures["reuse"]
    keys = ("off", "first", "again", "changed")
    rows = [(f"`{way}`", *(f"{found[f'adaptive {way}'][key]['s']:.2f}" for key in keys)) for way in ("off", "on")]
    return table(("`onager.adaptive`", "without reuse, s", "the first one, s", "again, s", "after a change, s"), *rows)


def sorting(figures: Figures) -> str:
    """Return a global sort."""
    ways = ("by one task", "by several", "plain Spark")
    rows = [(way, ", ".join(f"{seconds:.1f}" for seconds in figures["sorting"][way])) for way in ways]
    return table(("", "seconds of each run"), *rows)


def broadcasts(figures: Figures) -> str:
    """Return a statement of many broadcasts."""
    found = figures["broadcasts"]
    mine, theirs = found["onager"], found["plain"]
    row = (found["memory"], mine["stages"], f"{mine['best_s']:.1f}", f"{theirs['best_s']:.1f}", f"{found['ratio']:.2f}")
    return table(("heap of each executor", "stages", "Onager, s", "Spark, s", "ratio"), row)


def planning(figures: Figures) -> str:
    """Return jobs that do next to nothing."""
    kinds = {"sql": "SQL", "function": "a function", "function with pandas": "a function that uses pandas"}
    quantiles = ("p10_ms", "p50_ms", "p90_ms")
    rows = [
        (label, *(f"{figures['planning'][f'{kind}, here'][key]:.0f}" for key in quantiles))
        for kind, label in kinds.items()
    ]
    return table(("ms", "fastest tenth", "median", "slowest tenth"), *rows)


def large_result(figures: Figures) -> str:
    """Return a large result on its way."""
    found = figures["large-result"]
    text = (
        f"{found['rows']:,} rows, {found['bytes'] / 1e9:.1f} GB: made in {found['made_s']:.1f} s, fetched in "
        f"{found['fetched_s']:.1f} s ({found['mb_per_s']:.0f} MB/s). Peak resident memory, MiB:"
    )
    peaks = found["peak_mb"]
    rows = [
        (name, *(f"{peaks[phase].get(name, 0):,}" for phase in ("small", "made", "fetched"))) for name in peaks["small"]
    ]
    head = ("", "with a small result", "while it was made", "while it was fetched")
    return f"{text}\n\n{table(head, *rows)}"


def orchestration(figures: Figures) -> str:
    """Return what it costs to orchestrate a task."""
    rows = [
        (
            f"{row['backend']}, {row['mode']}",
            row["schedulers"],
            f"{row['tasks']:,}",
            f"{row['tasks_per_s']:,.0f}",
            f"{row['store_writes_per_task']:.3f}",
            f"{row['store_bytes_per_task']:.0f}",
            *(f"{row[f'{part}_cpu_us_per_task']:.0f}" for part in ("scheduler", "executor", "store")),
            _pair(row, "first_task_ms"),
            _pair(row, "busy_first_task_ms"),
        )
        for row in figures["orchestration"]["rows"]
    ]
    head = ("", "schedulers", "tasks", "tasks/s", "writes", "bytes", "µs: schedulers", "executors", "store")
    return table((*head, "first task, ms", "on a busy cluster"), *rows)


def _pair(row: Any, key: str) -> str:
    return ", ".join("none" if row[f"{key}_{q}"] is None else f"{row[f'{key}_{q}']:.0f}" for q in ("p50", "p99"))


def small_jobs(figures: Figures) -> str:
    """Return many small jobs."""
    rows = [
        (
            row["backend"],
            row["schedulers"],
            row["jobs"],
            f"{row['jobs_per_s']:.0f}",
            row["failed"],
            f"{row['conflicts']:.2f}",
            f"{row['writes']:.1f}",
            *(f"{row[f'{part}_cpu_ms']:.1f}" for part in ("scheduler", "executor", "store")),
        )
        for row in figures["small-jobs"]["rows"]
    ]
    head = ("", "schedulers", "jobs", "jobs/s", "failed", "refused transactions", "writes")
    return table((*head, "ms: schedulers", "executors", "store"), *rows)


def failover(figures: Figures) -> str:
    """Return kills of schedulers."""

    def cells(found: Any) -> Cells:
        times = (
            f"{found[key]:.2f}"
            for key in ("extra_s_p50", "extra_s_max", "reported_extra_s_p50", "reported_extra_s_max")
        )
        alone = f"{found['undisturbed_s_p50']:.2f}, up to {found['undisturbed_s_spread']:.2f} more"
        return (found["kills"], *times, found["finished_tasks_rerun"], found["wrong_results"], alone)

    head = ("extra seconds", "kills", "median", "most", "median, by the client", "most", "finished tasks run again")
    names = {"failover": "pull", "failover-push": "`--mode push`"}
    return table((*head, "wrong results", "undisturbed, s"), *figures.rows(names, cells))


def takeover(figures: Figures) -> str:
    """Return what reading a large job costs."""
    found = figures["takeover"]
    read = max(found["reads"], key=lambda each: each["cpu_ms"])
    held = (max(each["blocked_ms"] for each in found[key]) for key in ("reads", "snapshots"))
    row = (f"{read['tasks']:,}", f"{read['ms']:.0f}", f"{read['cpu_ms']:.0f}", *(f"{ms:.0f}" for ms in held))
    return table(
        ("tasks done", "read in, ms", "of processor, ms", "holds up the event loop, ms", "a snapshot, ms"), row
    )


def graph(figures: Figures) -> str:
    """Return the pure core alone."""
    runs = figures["graph"]["runs"]
    rows = (
        ("take, launch and finish a task, µs", *(f"{run['us_per_task']['all']:.1f}" for run in runs)),
        ("snapshot, bytes a task", *(f"{run['bytes_per_task']['snapshot']:.0f}" for run in runs)),
        ("log as written (zstd), bytes a task", *(f"{run['bytes_per_task']['log_zstd']:.0f}" for run in runs)),
        ("lose an executor that runs half of them, ms", *(f"{run['ms']['lose_executor_of_half']:.0f}" for run in runs)),
    )
    return table(("", *(f"{run['tasks']:,} tasks" for run in runs)), *rows)


def state(figures: Figures) -> str:
    """Return the store beside its raw driver."""
    found = figures["state"]
    names = {
        "put": "single put",
        "fenced_txn": "put with an expectation and a fence",
        "batch_100": "100 puts in one transaction",
        "scan_1000": "page of 1,000 of 10,000 keys",
        "watch": "put, and its event seen",
    }
    parts = []
    for backend, cost in found["median_cost"].items():
        cells = {(row["operation"], row["callers"]): row for row in found["rows"] if row["backend"] == backend}
        callers = sorted({count for _, count in cells})
        rows = [
            (
                label,
                *(f"{cells[name, n]['per_s']:,.0f} ({cells[name, n]['cost']:.2f})" for n in callers),
                f"{cells[name, 8]['p50_ms']:.1f}, {cells[name, 8]['p99_ms']:.1f}",
            )
            for name, label in names.items()
        ]
        head = (f"{backend}, median cost {cost:.2f}", *(f"callers: {count}" for count in callers), "p50, p99 of 8, ms")
        parts.append(table(head, *rows))
    return "\n\n".join(parts)


def connect_latency(figures: Figures) -> str:
    """Return small requests of Spark Connect."""
    rows = [
        (f"`{row['request']}`", f"{row['onager_ms_p50']:.1f}", f"{row['spark_ms_p50']:.1f}", f"{row['ratio']:.2f}")
        for row in figures["connect-latency"]["rows"]
    ]
    return table(("p50, ms", "Onager", "Spark's server", "ratio"), *rows)


def connect_kill(figures: Figures) -> str:
    """Return kills beside a program of Spark Connect."""
    labels = {
        "serving": "the scheduler that serves, in mid-result",
        "another": "another one, in mid-result",
        "serving a running job": "the scheduler that serves, while the job runs",
        "executor": "an executor, while the job runs",
        "all": "all schedulers, in mid-result",
        "any": "any of these",
    }
    found = figures["connect-kill"]["summary"]
    rows = [
        (
            label,
            found[kind]["runs"],
            *(f"{found[kind][key]:.2f}" for key in ("pause_s_p50", "pause_s_max")),
            *(found[kind][key] for key in ("wrong", "not_once", "lost")),
        )
        for kind, label in labels.items()
    ]
    head = (
        "killed",
        "times",
        "median pause, s",
        "most, s",
        "wrong results",
        "tasks not done once",
        "lost of the session",
    )
    return table(head, *rows)


def connect_session(figures: Figures) -> str:
    """Return the first queries of a large session whose executor was killed."""
    found = figures["connect-session"]
    names = {
        "first_s": "the first query",
        "rows_s": "one that reads its rows",
        "all_s": "one over ten views, all functions",
    }
    rows = [
        (label, *(f"{pick(run[key] for run in found['runs']):.1f}" for pick in (min, max)))
        for key, label in names.items()
    ]
    alone = ("the first query, undisturbed", f"{found['undisturbed_s']:.1f}", "")
    return table(("seconds", "least", "most"), *rows, alone)


BLOCKS: Final[dict[str, Callable[[Figures], str]]] = {
    "run": run,
    "readme": readme,
    "tpch": tpch,
    "tpch-queries": tpch_queries,
    "tpch-large": tpch_large,
    "exchange": exchange,
    "streams": streams,
    "adaptive": adaptive,
    "adaptive-turns": adaptive_turns,
    "reuse": reuse,
    "sorting": sorting,
    "broadcasts": broadcasts,
    "planning": planning,
    "large-result": large_result,
    "orchestration": orchestration,
    "small-jobs": small_jobs,
    "failover": failover,
    "takeover": takeover,
    "graph": graph,
    "state": state,
    "connect-latency": connect_latency,
    "connect-kill": connect_kill,
    "connect-session": connect_session,
}
