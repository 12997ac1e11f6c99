"""What the rest of a query can be planned again from, kept beside the plan: its frame.

    "ONGRFRAM"  header length: u32  header: JSON (UTF-8)  the kernel's part (Java's `Frame`)

The kernel's part is the logical plan, with the files as they were listed, and the physical plan, whose exchanges name
the stages that they end. The header is what the cutter needs to know, and the versions that made it.
"""

import json
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from onager.executor.spark.jvm import Jvm, jvm_error, jvm_session
from onager.executor.spark.kernel.queries import FrameTools
from onager.executor.spark.plan_codec import here
from onager.executor.spark.planning.cut_stages import Cut, CutStage, CutTerms
from onager.executor.spark.stage_plan import ExchangeInput, SortedOutput
from onager.job_settings import ADAPTIVE, ADAPTIVE_DEFAULT, EXCHANGE

MAGIC: Final = b"ONGRFRAM"
MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A larger frame is not kept: what lists so many files, or holds so many rows, is planned once."""
_PREFIX: Final = struct.Struct(">8sI")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FirstFrame:
    """The frame of a query that was planned for the first time."""

    content: bytes
    broadcast_bytes: int
    """Up to how many bytes Spark would broadcast."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, as far as Python knows it."""

    terms: CutTerms
    conf: Mapping[str, str]
    """The settings under which the query was planned."""
    reads: Mapping[int, tuple[int, ...]]
    """The stages that each stage reads."""
    sorted_stages: frozenset[int]
    """Those whose tasks write sorted runs."""
    subqueries: Mapping[str, int]
    """Those that give the values of subqueries, by these' names."""
    kernel: bytes = b""
    made_by: str = ""

    def with_stages(self, cut: Cut, kernel: bytes) -> "Frame":
        """Return the frame of the plan that was *cut* last, with its part of the kernel."""
        reads = {
            stage.stage_id: tuple(sorted({s.stage_id for s in stage.plan.inputs if isinstance(s, ExchangeInput)}))
            for stage in cut.stages
        }
        runs = {stage.stage_id for stage in cut.stages if isinstance(stage.plan.output, SortedOutput)}
        return replace(
            self,
            reads={**self.reads, **reads},
            sorted_stages=self.sorted_stages | runs,
            subqueries=cut.subqueries,
            kernel=kernel,
        )

    def encoded(self) -> bytes:
        """Return it as bytes."""
        header = {
            "terms": asdict(self.terms),
            "conf": dict(self.conf),
            "reads": {str(stage_id): list(read) for stage_id, read in self.reads.items()},
            "sorted": sorted(self.sorted_stages),
            "subqueries": dict(self.subqueries),
            "made_by": str(here()),
        }
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        return _PREFIX.pack(MAGIC, len(text)) + text + self.kernel

    @staticmethod
    def decoded(data: bytes) -> "Frame":
        """Return what `encoded` wrote; ValueError for anything else."""
        if len(data) < _PREFIX.size or not data.startswith(MAGIC):
            raise ValueError("these bytes are not a frame")
        _, length = _PREFIX.unpack_from(data)
        end = _PREFIX.size + length
        header: dict[str, Any] = json.loads(data[_PREFIX.size : end])
        terms = header["terms"]
        return Frame(
            terms=CutTerms(**{**terms, "column_names": tuple(terms["column_names"])}),
            conf=header["conf"],
            reads={int(stage_id): tuple(read) for stage_id, read in header["reads"].items()},
            sorted_stages=frozenset(header["sorted"]),
            subqueries=header["subqueries"],
            kernel=data[end:],
            made_by=header["made_by"],
        )


def keeps_frame(conf: Mapping[str, str], stages: Sequence[CutStage]) -> bool:
    """Return whether a job under *conf*, cut into *stages*, may be planned again."""
    mode = conf.get(ADAPTIVE, "").strip().lower() or ADAPTIVE_DEFAULT
    if conf.get(EXCHANGE, "").strip().lower() == "streaming" or len(stages) == 1:
        return False
    return mode == "force" or (mode == "on" and any(stage.sides for stage in stages))


def first_frame(session: SparkSession, execution: Any, plan: Any, cut: Cut, terms: CutTerms) -> FirstFrame | None:
    """Return the frame of the query *execution*, planned in *session* as *plan*; None if it cannot be stored."""
    tools, java = FrameTools(Jvm.of(session)), jvm_session(session)
    with tempfile.TemporaryDirectory(prefix="onager-frame-") as scratch:
        target = Path(scratch, "frame")
        try:
            why_not = tools.write(java, execution, plan, cut.exchanges, target)
        except (Py4JJavaError, CapturedException) as e:  # the query runs all the same
            why_not = str(jvm_error(e) or e)
        if why_not:
            log.info("frame_not_kept", why=why_not)
            return None
        kernel = target.read_bytes()
    empty = Frame(terms, cut.stages[-1].plan.conf, {}, frozenset(), {})
    content = empty.with_stages(cut, kernel).encoded()
    if len(content) > MAX_FRAME_BYTES:
        log.info("frame_not_kept", why=f"it has {len(content):,} bytes")
        return None
    return FirstFrame(content, max(0, tools.most_broadcast(java)))
