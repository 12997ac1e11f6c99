"""``python -m benchmarks.listing --json FILE [--files 100000] [--from-files 2000]``: a directory with very many files.

The same query over the same files: read while they are still being listed, listed whole when it is planned, and by
plain Spark with ``--spark``. Small files of text, so that what is measured is files, not bytes. Two executors of a slot
each. All seconds are since the submission, by the job's own log.

| figure | what it is |
|---|---|
| ``planned_s`` | the plan was accepted |
| ``first_task_s`` | the first task that reads had succeeded |
| ``listed_s`` | the last file was known |
| ``tasks_before_listed`` | how many tasks had read by then |
| ``total_s`` | the job had ended |
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import onager
from benchmarks.cluster import Cluster
from onager.client.job import JobHandle
from onager.job_settings import FEED_FROM_FILES, FUSION_MAX_BYTES

QUERY = "SELECT count(*) AS files, sum(CAST(value AS BIGINT)) AS total FROM lines"


def main() -> None:
    """Measure, print, write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listing", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, help="how many files there are")
    parser.add_argument("--from-files", type=int, default=2_000, help="how many of them planning lists")
    parser.add_argument("--runs", type=int, default=1, help="timed runs of each way, after one over fewer files")
    parser.add_argument("--spark", action="store_true", help="plain Spark, too")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    options = parser.parse_args()
    ways = {"while it is listed": options.from_files, "listed first": 0}
    report: dict[str, Any] = {"files": options.files, "from_files": options.from_files}
    with tempfile.TemporaryDirectory(prefix="onager-bench-") as scratch:
        few, many = _files(Path(scratch) / "few", 4_000), _files(Path(scratch) / "many", options.files)
        with Cluster((1, 1)) as cluster, onager.connect(cluster.address) as client:
            for way, from_files in ways.items():
                conf = {FUSION_MAX_BYTES: "0", FEED_FROM_FILES: str(from_files)}
                _run(client, few, 4_000, conf)
                report[way] = [_run(client, many, options.files, conf) for _ in range(options.runs)]
        if options.spark:
            report["plain Spark"] = [_plain_spark(many, options.files)]
    for way in (*ways, *(["plain Spark"] if options.spark else [])):
        print(f"{way}: {report[way]}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")


def _files(directory: Path, count: int) -> Path:
    directory.mkdir()
    for n in range(count):
        (directory / f"part-{n:07}.txt").write_text(f"{n}\n")
    return directory


def _run(client: onager.OnagerClient, directory: Path, files: int, conf: dict[str, str]) -> dict[str, float]:
    job = client.sql(QUERY, views={"lines": str(directory)}, conf=conf)
    _check(job.to_arrow().to_pylist()[0], files)
    return _figures(job)


def _figures(job: JobHandle) -> dict[str, float]:
    begun_ms = job.progress().submitted_ms
    planned_ms = first_ms = listed_ms = ended_ms = 0
    scan, before = 1, 0
    for event in job.events():
        ended_ms = max(ended_ms, event.at_ms)
        if event.type == "job_planned":
            planned_ms = listed_ms = event.at_ms
            fed = [stage["stage_id"] for stage in event.fields["stages"] if stage.get("feed")]
            scan = fed[0] if fed else 1
            listed_ms = 0 if fed else planned_ms
        elif event.type == "feed_ended":
            listed_ms = event.at_ms
        elif event.type == "task_succeeded" and event.fields["stage_id"] == scan:
            first_ms = first_ms or event.at_ms
            before += not listed_ms
    moments = {"planned_s": planned_ms, "first_task_s": first_ms, "listed_s": listed_ms, "total_s": ended_ms}
    return {name: round((ms - begun_ms) / 1000, 2) for name, ms in moments.items()} | {"tasks_before_listed": before}


def _plain_spark(directory: Path, files: int) -> dict[str, float]:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        spark.range(10).count()
        begun_s = time.perf_counter()
        spark.read.text(str(directory)).createOrReplaceTempView("lines")
        listed_s = time.perf_counter() - begun_s
        _check(spark.sql(QUERY).toArrow().to_pylist()[0], files)
        return {"listed_s": round(listed_s, 2), "total_s": round(time.perf_counter() - begun_s, 2)}
    finally:
        spark.stop()


def _check(row: dict[str, int], files: int) -> None:
    if row != {"files": files, "total": files * (files - 1) // 2}:
        sys.exit(f"of {files} files the result is {row}")


if __name__ == "__main__":
    main()
