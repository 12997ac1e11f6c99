"""What jobs compute, without Spark: plans drawn by the seed, outputs as numbers, and the exchange that they lie in.

The value of a task follows from its job, stage and partition and from the values that it read; that of a stage which
is not deterministic depends on the execution, too. So a result tells whether it was made of what belongs together.
"""

import hashlib
import json
import random  # noqa: TID251 seeded
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from onager.ids import TaskKey
from onager.protocol import onager_pb2 as pb

SCHEMA = pa.schema([("n", pa.int64())])
LEAF_BYTES = (20, 20, 100)
"""What stages without inputs read, of which one is drawn: most twice what a task writes, some much more."""
_PARTITIONS = (1, 1, 2, 2, 3, 4, 6, 0)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage of a drawn plan."""

    partitions: int
    inputs: tuple[int, ...]
    is_deterministic: bool = True
    buckets: int = 1
    """Of its output, unless that is the job's."""
    may_fuse: bool = False
    may_merge: bool = False
    may_split: bool = False
    """Whether several tasks may read a bucket of its first input."""
    fed_by: int = 0
    """The stage that finds its partitions; 0: all are known."""
    adds: tuple[int, ...] = ()
    """How many partitions that one finds at a time, after the first ones: those that are in no portion."""
    is_feed: bool = False

    @property
    def planned(self) -> int:
        """How many partitions planning finds."""
        return self.partitions - sum(self.adds)

    def place(self, partition: int) -> list[int]:
        """Return the portion of *partition*, and its place there; nothing if the stage does not grow."""
        first = 0
        for portion, count in enumerate((self.planned, *self.adds) if self.fed_by else ()):
            if partition < first + count:
                return [portion, partition - first]
            first += count
        return []


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job does; its SQL text is this as JSON, so that equal jobs share their blobs."""

    stages: tuple[StagePlan, ...]
    is_fused: bool = False
    has_sink: bool = False
    is_shared: bool = True
    """Whether outputs outlive their executor."""
    is_inline: bool = True
    """Whether the result comes in reports."""
    family: int = 0
    growth: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Which stages can grow, and how many partitions they get at a time after the planned ones, ascending."""
    is_reusable: bool = False
    """Whether values are the same in all jobs of this plan."""

    def text(self) -> str:
        plain = [
            [s.partitions, list(s.inputs), s.is_deterministic, s.buckets, s.may_fuse, s.may_merge, s.may_split]
            + ([s.fed_by, list(s.adds), s.is_feed] if s.fed_by or s.is_feed else [])
            for s in self.stages
        ]
        growth = [[[number, list(adds)] for number, adds in self.growth]] if self.growth else []
        return json.dumps(
            [plain, self.is_fused, self.has_sink, self.is_shared, self.is_inline, self.family, *growth]
            + [True] * self.is_reusable
        )

    def growing(self) -> "JobPlan":
        """Return the plan with a feed before each stage that can grow."""
        adds = dict(self.growth)
        ids: dict[int, int] = {}
        made: list[StagePlan] = []
        for number, stage in enumerate(self.stages, start=1):
            if number in adds:
                made.append(StagePlan(len(adds[number]), (), is_deterministic=False, is_feed=True))
            inputs = tuple(ids[i] for i in stage.inputs)
            if number in adds:
                total = stage.partitions + sum(adds[number])
                stage = replace(stage, partitions=total, fed_by=len(made), adds=adds[number], may_fuse=False)  # noqa: PLW2901
            ids[number] = len(made) + 1
            made.append(replace(stage, inputs=inputs))
        return replace(self, stages=tuple(made), growth=())

    @staticmethod
    def parse(text: str) -> "JobPlan":
        stages, is_fused, has_sink, is_shared, is_inline, family, *more = json.loads(text)
        return JobPlan(
            tuple(
                StagePlan(n, tuple(inputs), *(tuple(each) if isinstance(each, list) else each for each in rest))
                for n, inputs, *rest in stages
            ),
            is_fused,
            has_sink,
            is_shared,
            is_inline,
            family,
            tuple((number, tuple(adds)) for found in more if found is not True for number, adds in found),
            True in more,
        )

    def owner(self, job_id: str) -> str:
        """Return whose values those of *job_id* are."""
        return "" if self.is_reusable else job_id

    @property
    def is_deterministic(self) -> bool:
        return all(stage.is_deterministic for stage in self.stages)

    def expected(self, job_id: str) -> list[list[int]]:
        """Return the rows of each partition of the result, computed in order by one who never fails."""
        values: dict[int, list[int]] = {}
        for number, stage in enumerate(self.stages, start=1):
            read = [values[i] for i in stage.inputs]
            values[number] = [
                value_of(self.owner(job_id), number, p, _with_place(read, stage, p), "")
                for p in range(stage.partitions)
            ]
        return [rows_of(value) for value in values[len(self.stages)]]


def draw_plan(rng: random.Random, family: int, *, scale: int = 1) -> JobPlan:
    """Draw what a job does; its stages have *scale* times as many partitions as most have."""
    count = rng.choice((1, 2, 2, 3, 4, 5))
    if rng.random() < 0.12:
        return JobPlan((StagePlan(1, ()),), is_fused=True, is_shared=rng.random() < 0.6, family=family)
    reads: list[set[int]] = [set() for _ in range(count + 1)]
    for producer in range(1, count):
        for _ in range(rng.choice((1, 1, 2))):
            reads[rng.randint(producer + 1, count)].add(producer)
    may_vary = rng.random() < 0.25
    stages = tuple(
        StagePlan(scale * rng.choice(_PARTITIONS), tuple(sorted(reads[n])), not (may_vary and rng.random() < 0.5))
        for n in range(1, count + 1)
    )
    stages = _measured(stages, random.Random(f"layout {stages} {family}"))
    has_sink = rng.random() < 0.15
    is_shared = rng.random() < 0.6
    return JobPlan(
        stages, has_sink=has_sink, is_shared=is_shared, is_inline=rng.random() < 0.5 or not is_shared, family=family
    )


def with_growth(plan: JobPlan, rng: random.Random) -> JobPlan:
    """Return *plan* with some stages that can grow."""
    numbers = [number for number in range(1, len(plan.stages) + 1) if rng.random() < 0.5]
    if plan.is_fused:
        return plan
    return replace(
        plan,
        growth=tuple((n, tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.choice((1, 2, 4))))) for n in numbers),
    )


def _with_place(read: Iterable[Sequence[int]], stage: StagePlan, partition: int) -> list[Sequence[int]]:
    place = stage.place(partition)
    return [*read, place] if place else list(read)


def _measured(stages: tuple[StagePlan, ...], rng: random.Random) -> tuple[StagePlan, ...]:
    """Draw by what stages may be laid out, with a generator of its own; everything else stays as it was drawn."""
    may_fuse = rng.random() < 0.7
    readers: dict[int, set[int]] = {}
    for stage in stages:
        for i in stage.inputs:
            readers.setdefault(i, set()).add(stage.partitions)
    drawn = []
    for number, stage in enumerate(stages, start=1):
        tasks = readers.get(number, set())
        drawn.append(
            replace(
                stage,
                buckets=max(1, *tasks) if len(tasks) == 1 else 1,
                may_fuse=may_fuse and rng.random() < 0.9,
                may_merge=rng.random() < 0.9,
                may_split=rng.random() < 0.5,
            )
        )
    return tuple(drawn)


_SIZES = (0, 1, 100, 130, 170, 190)
"""Bytes of buckets, as logarithms: nothing, next to nothing, 14 kB, 240 kB, 11 MB, 73 MB."""
_HUGE = 222
"""1.5 GB."""


def sizes_of(job_id: str, stage_id: int, partition: int, buckets: int) -> bytes:
    """Return how large a task's buckets are said to be: mostly alike, with one that is larger in some stages."""
    rng = random.Random(f"sizes {job_id} {stage_id}")
    usual, skewed, at = rng.choice(_SIZES), rng.choice((0, _HUGE, _HUGE)), rng.randrange(max(1, buckets))
    rng = random.Random(f"sizes {job_id} {stage_id} {partition}")
    return bytes(skewed if bucket == at else max(0, usual - rng.randrange(3)) for bucket in range(buckets))


Read = tuple[int, int, int, int, int]
"""The first bucket and the end, the split input or 0, and the first producer and the end."""


def value_in(
    plan: JobPlan,
    task: tuple[str, int, int],
    read: Mapping[int, Sequence[Any]],
    nonce: str,
    fused: Collection[int] = (),
    part: Read | None = None,
    place: Sequence[int] | None = None,
) -> int:
    """Return the value of *task* (job, stage, partition), made of the values of each stage that it reads.

    Stages in *fused* are computed by it, too; of what it reads, *part* counts if it is given. *place*: its portion and
    place there, in a stage that grows; None: by the plan.
    """
    job_id, number, partition = plan.owner(task[0]), *task[1:]

    def salt(stage_id: int) -> str:
        return "" if plan.stages[stage_id - 1].is_deterministic else nonce

    def values(stage_id: int) -> Sequence[Any]:
        if stage_id not in fused:
            return read[stage_id]
        inner = plan.stages[stage_id - 1]
        below = [values(i) for i in inner.inputs]
        return [value_of(job_id, stage_id, p, below, salt(stage_id)) for p in range(inner.partitions)]

    found = [values(i) for i in plan.stages[number - 1].inputs]
    if part is not None:
        first, end, split, *producers = part
        found = [
            values[slice(*producers)] if split == i else values
            for i, values in zip(plan.stages[number - 1].inputs, found, strict=True)
        ]
        found.append([first, end])
    stage = plan.stages[number - 1]
    found = _with_place(found, stage, partition) if place is None else [*found, place]
    return value_of(job_id, number, partition, found, salt(number))


def value_of(job_id: str, stage_id: int, partition: int, read: Iterable[Sequence[int]], salt: str) -> int:
    reported = json.dumps([job_id, stage_id, partition, [list(r) for r in read], salt])
    return int.from_bytes(hashlib.blake2b(reported.encode(), digest_size=7).digest(), "big")


def rows_of(value: int) -> list[int]:
    """Return the rows of a result partition: up to five, in order."""
    return [value % 1_000_003 + n for n in range(value % 6)]


def arrow_stream(rows: Sequence[int]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for start in range(0, len(rows), 2):
            writer.write_batch(pa.record_batch([pa.array(rows[start : start + 2], pa.int64())], schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def portion_of(stage_id: int, portion: int, partitions: int) -> bytes:
    """Return what a feed leaves of a portion: whose it is, which, and how many partitions it has."""
    return json.dumps(["portion", stage_id, portion, partitions]).encode()


def outcome_of(plan: JobPlan) -> pb.PlanOutcome:
    """Return what planning reports; a fused output is added by who ran it."""
    outcome = pb.PlanOutcome(arrow_schema=SCHEMA.serialize().to_pybytes(), schema_json="{}", plan="a plan")
    add_stages(outcome, plan)
    if plan.has_sink:
        outcome.sink.CopyFrom(pb.Sink(path="/data/target", format="parquet", mode="overwrite"))
    return outcome


def add_stages(outcome: pb.PlanOutcome, plan: JobPlan, first: int = 1) -> None:
    """Add the stages of *plan* to *outcome*, from *first* on."""
    for number, stage in list(enumerate(plan.stages, start=1))[first - 1 :]:
        is_last = number == len(plan.stages)
        sides = random.Random(f"sides {plan.family} {stage.inputs}")
        sizes = random.Random(f"sizes {plan.family} {number}")
        kind = ("sink" if plan.has_sink else "result") if is_last else "control" if stage.is_feed else "exchange"
        planned = outcome.stages.add(
            stage_id=number,
            work=pb.FEED if stage.is_feed else pb.QUERY,
            partitions=1 if stage.is_feed else stage.planned,
            output=pb.OutputLayout(kind=kind, buckets=1 if is_last else stage.buckets),
            deterministic=stage.is_deterministic,
            inputs=[
                pb.StageInput(
                    stage_id=i,
                    read="bucket",
                    may_split=stage.may_split and i == stage.inputs[0],
                    side=sides.choice(("", "shuffled", "broadcast", "joined")),
                )
                for i in stage.inputs
            ],
            feed_stage_id=stage.fed_by,
            leaf_bytes=0 if stage.inputs else sizes.choice(LEAF_BYTES),
            may_fuse=stage.may_fuse and not plan.is_fused,
            may_merge=stage.may_merge,
        )
        if not plan.is_fused:
            content = f"{plan.text()} stage {number}".encode()
            planned.plan_digest = digest(content)
            outcome.blobs.add(digest=planned.plan_digest, content=content)
        if stage.fed_by:
            content = portion_of(number, 0, stage.planned)
            planned.portions.add(digest=digest(content), partitions=stage.planned)
            outcome.blobs.add(digest=digest(content), content=content)


@dataclass(slots=True)
class Written:
    """What one execution left behind."""

    job_id: str
    stage_id: int
    partition: int
    task_attempt: int
    executor: str
    """Its name and number of life."""
    value: int
    is_shared: bool
    is_streamed: bool = False
    """Whether its rows went to readers, and lie nowhere."""
    is_there: bool = True


@dataclass(slots=True)
class Stream:
    """What an execution gives to others while it runs."""

    life: str
    address: str
    nonce: str
    value: int | None = None
    """None while it has not read what it is made of."""
    is_over: bool = False
    is_broken: bool = False


@dataclass(slots=True)
class Exchange:
    """StoreContents that executions wrote, by nonce, and datasets that were published."""

    written: dict[str, Written] = field(default_factory=dict)
    streams: dict[TaskKey, Stream] = field(default_factory=dict)
    stream_addresses: dict[str, str] = field(default_factory=dict)
    """Where each life of an executor that can stream does so."""
    lost: dict[str, str] = field(default_factory=dict)
    """Nonces of outputs that went by a fault, and why."""
    cleaned: dict[str, str] = field(default_factory=dict)
    """Nonces of outputs that a clean-up removed, and when."""
    published: dict[str, list[str]] = field(default_factory=dict)
    """Nonces of the published files, by job."""
    manifests: dict[str, list[str]] = field(default_factory=dict)

    def lose(self, nonce: str, why: str) -> None:
        if self.written[nonce].is_there:
            self.written[nonce].is_there = False
            self.lost[nonce] = why

    def lose_streams(self, life: str) -> None:
        for stream in self.streams.values():
            stream.is_broken = stream.is_broken or stream.life == life

    def lose_executor(self, life: str) -> None:
        self.lose_streams(life)
        for nonce, written in self.written.items():
            if written.executor == life and not written.is_shared:
                self.lose(nonce, f"{life} died")

    def clean(self, job_id: str, kept: Collection[str], stages: Collection[int], when: str) -> None:
        for nonce, written in self.written.items():
            is_kept = nonce in kept or written.stage_id in stages
            if written.job_id == job_id and not is_kept and written.is_there:
                written.is_there = False
                self.cleaned[nonce] = when
