"""The configuration of the harness's distributed runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from onager.testing.layout import Layout

KIB = 1024
MIB = 1024 * KIB

Exchange = Literal["files", "streams"]
Replanning = Literal["never", "larger", "smaller", "mixed"]


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """How a query is cut, where its tasks run and what connects them, and what counts as the same result."""

    tasks: int = 3
    """Buckets of every exchange, and the least number of tasks of a scan, however small its files."""
    executors: int = 2
    """How many executors there are; the tasks of each stage are dealt out to them in turn. An executor decodes the plan
    of a stage once for all of its tasks: with as many executors as tasks, each task has its own."""
    exchange: Exchange = "files"
    """What carries rows from stage to stage: row files, or streams between tasks that run at the same time."""
    layout: Layout = "planned"
    """How stages are laid out, as far as their plans allow it: as a cluster does that finds them small or skewed.
    "merged": tasks read two neighbouring buckets; "split": two tasks read a bucket; "fused": stages that read others
    become one task; "fused whole": those that read none, too. Over files alone."""
    replans: Replanning = "never"
    """Whether the rest of the query is planned again whenever a stage is done, up to eight times, by sizes that are
    1,000 times "larger" or "smaller" than measured; "mixed": some are larger and some smaller. Over files alone, and
    as planned."""
    channel_frames: int = 16
    """Frames that a stream holds of a task for a bucket before its writer waits; 1 exposes code that relies on more."""
    frame_bytes: int = 32 * KIB
    """Bytes of rows in a frame of a stream."""
    memory_bytes: int = 256 * MIB
    """Bytes of frames that the streams of all executors hold together; further frames go to files."""
    parallel_sort_bytes: int = 0
    """The bytes that a sort must read to be done by several tasks (``onager.sort.parallelFromBytes`` of a job)."""
    single_stage: bool = False
    """Whether the query is known to be one stage. Otherwise a query that was not cut fails the assertion."""
    ordered: bool | None = None
    """Whether the order of rows is compared, completely (True) or not (False); None: as far as the query orders its
    result."""
    relative_tolerance: float = 1e-9
    """How far two doubles (or floats) may differ, relative to the larger, in rows that are not exactly equal."""
    timeout_s: float = 120.0
    """How long the tasks may take together before they are stopped, and those that had not ended are listed."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark (``spark.sql.*``) for planning and running the distributed query, beyond those of the
    session."""

    def __post_init__(self) -> None:
        for name in ("tasks", "executors", "channel_frames", "frame_bytes", "memory_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"HarnessConfig.{name} is {getattr(self, name)}: give 1 or more")
        self._check_choices()
        if self.parallel_sort_bytes < 0:
            raise ValueError(f"HarnessConfig.parallel_sort_bytes is {self.parallel_sort_bytes}: give 0 or more")
        if not self.timeout_s > 0:
            raise ValueError(f"HarnessConfig.timeout_s is {self.timeout_s}: give a number of seconds above 0")
        if not 0 <= self.relative_tolerance < 1:
            raise ValueError(f"HarnessConfig.relative_tolerance is {self.relative_tolerance}: give 0 or more, below 1")

    def _check_choices(self) -> None:
        for name, choices in (("exchange", Exchange), ("layout", Layout), ("replans", Replanning)):
            if getattr(self, name) not in get_args(choices):
                given = getattr(self, name)
                raise ValueError(f"HarnessConfig.{name} is {given!r}: give one of {', '.join(get_args(choices))}")
        if self.layout != "planned" and self.exchange == "streams":
            raise ValueError(f"HarnessConfig.layout is {self.layout!r}: what streams runs as it was planned")
        if self.replans != "never" and (self.exchange == "streams" or self.layout != "planned"):
            raise ValueError(f"HarnessConfig.replans is {self.replans!r}: that is for files, and stages as planned")
