"""Clients that submit one job after the other through the load balancer, and compare the results."""

import random  # noqa: TID251 seeded
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

import onager
from benchmarks.tpch import query_text
from benchmarks.tpch.comparison import difference
from onager.client.spec import job_spec, python_message, sink_message
from onager.clock import SystemClock
from onager.errors import JobEndedError, OnagerError
from onager.ids import new_job_id
from onager.protocol import onager_pb2 as pb
from tests.chaos.expected import DIGESTS, QUERIES, SINK, SINK_QUERY, name_of

JOBS: Final = Path(__file__).with_name("jobs.py")
CUT: Final = {
    "onager.fusion.maxBytes": 0,
    "spark.sql.shuffle.partitions": 3,
    "onager.adaptive": "off",
}
"""Every exchange is cut, into few partitions: the data is tiny."""
STREAMING: Final = {"onager.exchange": "streaming", "spark.sql.shuffle.partitions": 1}
"""Stages of one task each: there are three slots for all that run together."""
PATIENCE_S: Final = 240.0
"""How long a client waits for a cluster that has answered before."""


@dataclass(slots=True)
class JobRecord:
    """What one client saw of one job; times are of the monotonic clock, in seconds."""

    job_id: str
    kind: str
    client: str
    submitted_s: float
    acknowledged_s: float | None = None
    ended_s: float | None = None
    trouble: str | None = None
    """What the client got instead of the expected result; `None` if it is right, or not known yet."""
    failure: pb.Failure | None = None
    """The job's own failure as stored."""
    tag: str = ""
    """What marks its rows, for a job that writes to a sink."""
    offers: bool = False
    """Whether its outputs stay for other jobs."""
    rerun: list[str] = field(default_factory=list)
    """Tasks that succeeded more than once."""
    streamed: str = ""
    """Of a job that was to stream: `yes`, or why it was begun again over the exchange directory."""

    @property
    def is_successful(self) -> bool:
        return self.ended_s is not None and self.trouble is None


class Client(threading.Thread):
    """One user: submits, waits, fetches, compares; ends when asked to, after the job at hand.

    With *lay_out*, half of its cut queries have stages laid out by what was measured. With *streams*, its cut queries
    stream.
    """

    def __init__(
        self,
        name: str,
        address: str,
        seed: int,
        views: Mapping[str, str],
        expected: Mapping[str, pa.Table],
        sinks: Path,
        *,
        lay_out: bool,
        streams: bool,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.records: list[JobRecord] = []
        self.stopping = threading.Event()
        self.sink = sinks / name
        self._lay_out = lay_out and not streams
        self._streams = streams
        self._address = address
        self._rng = random.Random(f"{seed} {name}")
        self._views = views
        self._expected = expected
        self._clock = SystemClock()

    def run(self) -> None:
        with onager.connect(self._address, connect_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S) as client:
            while not self.stopping.is_set():
                self.one_job(client, self._choose())

    def _choose(self) -> str:
        """Return the next kind of job: every fourth writes, every sixth is of Python functions."""
        drawn = self._rng.random()
        if drawn < 0.25:
            return SINK
        if drawn < 0.42:
            return DIGESTS
        return name_of(self._rng.choice(QUERIES))

    def one_job(self, client: onager.OnagerClient, kind: str) -> None:
        record = JobRecord(str(new_job_id(self._clock)), kind, self.name, time.monotonic())
        self.records.append(record)
        try:
            handle = client.submit(self._spec(record), record.job_id)
            record.acknowledged_s = time.monotonic()
            handle.wait()
            if kind != SINK:
                record.trouble = difference(handle.to_arrow(), self._expected[kind], _text(kind))
            record.ended_s = time.monotonic()
        except JobEndedError as error:
            record.ended_s = time.monotonic()
            record.trouble = f"failed: {error}"
        except Exception as error:  # noqa: BLE001 whatever a user gets is to be reported
            record.trouble = f"the client got {type(error).__name__}: {error}"
        if record.ended_s is not None:
            look_closer(client, record)

    def _spec(self, record: JobRecord) -> pb.JobSpec:
        if record.kind == DIGESTS:
            message, _ = python_message(f"{JOBS}:digests", {})
            return job_spec(python=message, name=DIGESTS, views=self._views, conf=CUT, py_files=(), sink=None)
        text, sink = _text(record.kind), None
        if record.kind == SINK:
            record.tag = f"{self.name}-{len(self.records)}"
            text = SINK_QUERY.format(tag=record.tag)
            sink = sink_message(self.sink, "parquet", "append", {})
        # Some run as a single stage, as small queries do.
        conf = dict(CUT) if self._rng.random() < 0.85 or sink else {}
        if conf and self._streams and not sink:
            conf |= STREAMING
        if conf and self._lay_out and self._rng.random() < 0.5:
            conf |= {"onager.adaptive": "on", "onager.adaptive.fuseBytes": self._rng.choice(("0", "2k", "8m"))}
        if conf and self._lay_out and self._rng.random() < 0.5:
            conf |= {"onager.reuse": "cluster"}
            record.offers = True
        return job_spec(sql=text, name=record.kind, views=self._views, conf=conf, py_files=(), sink=sink)


def look_closer(client: onager.OnagerClient, record: JobRecord) -> None:
    """Note what the cluster tells of a job that has ended: its failure, and tasks that succeeded more than once."""
    try:
        progress = client.job(record.job_id).detail().progress
    except OnagerError as error:
        record.trouble = f"the job ended, and then the client got {type(error).__name__}: {error}"
        return
    if progress.HasField("failure"):
        record.failure = progress.failure
    if progress.durable_because:
        record.streamed = progress.durable_because
        return  # it was begun again once
    if progress.exchange == "streaming" and sum(stage.work == "query" for stage in progress.stages) > 1:
        record.streamed = "yes"
    for stage in progress.stages:
        for task in stage.tasks:
            if task.successes > 1:
                again = f"stage {stage.stage_id} ({stage.work}, attempt {stage.attempt}) partition {task.partition}"
                record.rerun.append(f"{again} succeeded {task.successes} times in {task.attempts} attempts")


def _text(kind: str) -> str:
    return query_text(int(kind.removeprefix("q"))) if kind.startswith("q") else ""
