"""``python -m tests.chaos.power_loss.work ROOT [short]``: what is recorded. An executor's parts write and replace.

It appends marks to the record: what it will do, and what has been reported and so must survive from then on.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onager.exchange_layout import checkpoint, result_file
from onager.executor.exchange import carry_out, plan_publish, remove_staging, remove_table_folder, take_back
from onager.executor.exchange.partitions import HeldPartitions
from onager.executor.exchange.publish import Files
from onager.ids import new_nonce
from onager.manifests import Manifest
from onager.private_paths import NO_PATHS
from onager.protocol import onager_pb2 as pb
from tests.support.spark.one_executor import CUT, OneExecutor

_RESULT_ROWS: Final = 6000
"""A partition of as many is larger than what is returned with a report."""

Ids = tuple[int, int]
"""The rows of a range, from the first on, without the last."""


def mark(case: str, what: str, **fields: Any) -> None:
    """Append what has happened in *case* to the record."""
    line = json.dumps({"case": case, "is": what, **fields})
    with Path(os.environ["POWER_LOSS_RECORD"]).open("a") as record:
        record.write(f"mark\t{line}\t\n")


def _query(ids: Ids) -> str:
    return f"SELECT id, id % 3 AS k, repeat('x', 50) AS x FROM range({ids[0]}, {ids[1]}, 1, 2)"


class _Died(Exception):  # noqa: N818 - no error
    """The publisher died."""


@dataclass
class _DiesBefore(Files):
    """Dies before anything is renamed to *path*."""

    path: str

    def rename(self, source: Path, target: Path) -> None:
        if str(target) == self.path:
            raise _Died
        super().rename(source, target)


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs of one executor, one after another."""

    executor: OneExecutor
    root: Path

    def written(self, sink: pb.Sink, ids: Ids, *, is_cut: bool = True) -> list[pb.TaskOutput]:
        """Run the tasks that stage *ids* for *sink*; return what they reported."""
        conf = (CUT if is_cut else {}) | ({"onager.overwrite.anything": "true"} if sink.HasField("table") else {})
        outcome = self.executor.plan(pb.JobSpec(sql=pb.SqlScript(text=_query(ids)), sink=sink, conf=conf))
        if outcome.HasField("fused_output"):
            return [outcome.fused_output]
        with self.executor.running(outcome) as job:
            last = max(stage for stage, _ in job.reports)
            return [r.success.output for (stage, _), r in sorted(job.reports.items()) if stage == last]

    def publish(
        self,
        case: str,
        sink: pb.Sink,
        before: Sequence[Ids],
        ids: Ids,
        *,
        after: Sequence[Ids],
        held: HeldPartitions | None = None,
        old: Sequence[str] = (),
        new: Sequence[str] = (),
        files: Files | None = None,
        **run: bool,
    ) -> Manifest:
        """Do what the job does that replaces the rows *before* at *sink*, or nothing, by those *after*.

        *old* and *new*: the places of a table's rows before the job's success and from then on.
        """
        places = {"old": list(old or [sink.path]), "new": list(new or [sink.path])}
        mark(case, "begun", mode=sink.mode, before=before, after=after, **places)
        outputs = self.written(sink, ids, **run)
        manifest = plan_publish(self.executor.job_id, sink, outputs, new_nonce(), held=held)
        mark(case, "staged", manifest=manifest.to_bytes().decode())
        carry_out(manifest, files)
        mark(case, "published")
        return manifest

    def datasets(self, form: str, options: Mapping[str, str], partition_by: Sequence[str] = ()) -> None:
        """Make a dataset, overwrite it, append to it, and take back what jobs that fail appended and moved away."""
        path = str(self.root / "new" / form / "-".join(["out", *partition_by]))

        def sink(mode: str) -> pb.Sink:
            return pb.Sink(path=path, format=form, mode=mode, options=options, partition_by=partition_by)

        case = f"{form} {' '.join(partition_by)}".strip()
        self.publish(f"{case}: new", sink("error"), [], (0, 20), after=[(0, 20)])
        self.publish(f"{case}: overwritten", sink("overwrite"), [(0, 20)], (20, 40), after=[(20, 40)], is_cut=False)
        self.publish(f"{case}: appended", sink("append"), [(20, 40)], (40, 60), after=[(20, 60)])
        remove_staging(path, self.executor.job_id)
        name = f"{case}: taken back"
        self.publish(name, sink("append"), [(20, 60)], (60, 80), after=[(20, 80)])
        self.take_back(name, path)
        name = f"{case}: brought back"
        with contextlib.suppress(_Died):
            self.publish(name, sink("overwrite"), [(20, 60)], (80, 100), after=[(80, 100)], files=_DiesBefore(path))
        self.take_back(name, path)

    def take_back(self, case: str, path: str) -> None:
        """Do what is done when the last job has failed."""
        mark(case, "failed", job=self.executor.job_id)
        take_back(path, self.executor.job_id)
        remove_staging(path, self.executor.job_id)
        mark(case, "taken back")

    def table(self) -> None:
        """Append to partitions of a table, replace all of them, then those that get rows, and remove the old files."""
        home = self.root / "warehouse" / f"t-{'0' * 16}"
        table = pb.SinkTable(key="tables/default/t", table_id="0" * 16, location=f"file:{home}", replaces="nothing")
        sink = pb.Sink(path=str(home), format="parquet", mode="append", partition_by=["k"], table=table)
        held = HeldPartitions({}, f"file:{home}")
        places = [f"{home}/k={k}" for k in range(3)]
        made = self.publish("table: appended", sink, [], (0, 30), after=[(0, 30)], held=held, old=places, new=places)
        remove_staging(sink.path, self.executor.job_id)
        locations = _locations(made)
        for life, replaces, ids, kept in (("1", "matching", (30, 60), ()), ("2", "written", (60, 90), ())):
            old = list(locations.values())
            sink.path, sink.mode, sink.table.replaces = f"{home}/v-{life * 16}", "error", replaces
            case = f"table: replaced, {replaces}"
            held = HeldPartitions({path: f"file:{place}" for path, place in locations.items()})
            new = [f"{sink.path}/{path}" for path in locations]
            before = [(ids[0] - 30, ids[0])]
            self.publish(case, sink, before, ids, after=[ids, *kept], held=held, old=old, new=new)
            mark(case, "committed")
            remove_table_folder(f"{sink.path}/_replaced", NO_PATHS)
            mark(case, "ended")
            locations = {path: f"{sink.path}/{path}" for path in locations}

    def checkpoint(self) -> None:
        """Make the checkpoint of a session of Spark Connect."""
        job = f"job-{self.executor.jobs + 1}"
        sink = pb.Sink(path=str(self.executor.directory / checkpoint(job)), format="parquet", mode="error")
        self.publish("checkpoint", sink, [], (0, 20), after=[(0, 20)])

    def results(self, *, is_cut: bool) -> None:
        """Make a result too large for a report."""
        case = f"result, {'cut' if is_cut else 'whole'}"
        text = f"SELECT id, sha2(cast(id AS STRING), 512) AS x FROM range(0, {2 * _RESULT_ROWS}, 1, 2)"
        outcome = self.executor.plan_sql(text, conf=CUT if is_cut else {})
        if outcome.HasField("fused_output"):
            self._reported(case, 1, 0, outcome.fused_output)
            return
        with self.executor.running(outcome) as job:
            for (stage, partition), report in job.reports.items():
                self._reported(case, stage, partition, report.success.output)

    def _reported(self, case: str, stage: int, partition: int, output: pb.TaskOutput) -> None:
        if output.inline:
            raise AssertionError(f"{case}: the result is too small for a file")
        name = result_file(self.executor.job_id, stage, partition, output.nonce)
        mark(f"{case} {partition}", "result", file=str(self.executor.directory / name), checksum=output.checksum)


def _locations(manifest: Manifest) -> dict[str, str]:
    if manifest.table is None:
        raise AssertionError("it is no table's")
    return {path: place.location.removeprefix("file:") for path, place in manifest.table.places.items()}


def main() -> None:
    root, is_short = Path(sys.argv[1]), "short" in sys.argv[2:]
    exchange = root / "exchange"
    exchange.mkdir()
    executor = OneExecutor(exchange)
    work = Work(executor, root)
    try:
        work.datasets("csv", {"header": "true"})
        work.datasets("parquet", {}, ["k"])
        work.table()
        work.checkpoint()
        work.results(is_cut=True)
        work.results(is_cut=False)
        if not is_short:
            work.datasets("json", {})
            work.datasets("parquet", {})
    finally:
        executor.close()


if __name__ == "__main__":
    main()
