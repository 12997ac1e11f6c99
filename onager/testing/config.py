"""The configuration of the harness's distributed runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """How a query is cut, how its tasks are connected, and what counts as the same result."""

    tasks: int = 3
    """Buckets of every exchange, and the least number of tasks of a scan, however small its files."""
    channel_frames: int = 16
    """Frames that a channel holds before its writer waits; 1 exposes code that relies on more."""
    channel_bytes: int = MIB
    """Bytes that a channel holds before its writer waits; a larger frame passes all the same."""
    frame_bytes: int = 32 * KIB
    """Bytes of rows in a frame."""
    memory_bytes: int = 256 * MIB
    """Bytes of frames that all channels hold together; further frames go to a file."""
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
    """How long the tasks may take together before they are stopped, with a list of which waits for which."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark (``spark.sql.*``) for planning and running the distributed query, beyond those of the
    session."""

    def __post_init__(self) -> None:
        for name in ("tasks", "channel_frames", "channel_bytes", "frame_bytes", "memory_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"HarnessConfig.{name} is {getattr(self, name)}: give 1 or more")
        if self.parallel_sort_bytes < 0:
            raise ValueError(f"HarnessConfig.parallel_sort_bytes is {self.parallel_sort_bytes}: give 0 or more")
        if not self.timeout_s > 0:
            raise ValueError(f"HarnessConfig.timeout_s is {self.timeout_s}: give a number of seconds above 0")
        if not 0 <= self.relative_tolerance < 1:
            raise ValueError(f"HarnessConfig.relative_tolerance is {self.relative_tolerance}: give 0 or more, below 1")
