"""Stage plans as bytes: a versioned container that is the same for the same plan.

    "ONGRPLAN"  version: u16  header length: u32  header: JSON (UTF-8)  attachments, one after another

The header is the `StagePlan` with each binary field replaced by its ``[offset, length]`` in the attachments. It names
the versions of Spark and of the kernel that made the plan.
"""

import hashlib
import json
import struct
from dataclasses import asdict, fields
from functools import cache
from typing import Any, Final

import pyspark

from onager.errors import VersionMismatchError
from onager.executor.spark.kernel_jar import kernel_version
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    HashOutput,
    LeafInput,
    MadeBy,
    ResultOutput,
    RoundRobinOutput,
    SingleOutput,
    SortedOutput,
    StageOutput,
    StagePlan,
    StageSource,
)

MAGIC = b"ONGRPLAN"
VERSION = 1
_PREFIX = struct.Struct(">8sHI")
_OUTPUTS: Final[dict[str, type[StageOutput]]] = {
    "hash": HashOutput,
    "round_robin": RoundRobinOutput,
    "single": SingleOutput,
    "sorted": SortedOutput,
    "result": ResultOutput,
}
"""By their kinds; bytes in them are attached."""


def encode(plan: StagePlan) -> bytes:
    """Return *plan* as bytes, uncompressed."""
    attachments = bytearray()

    def attach(content: bytes) -> list[int]:
        place = [len(attachments), len(content)]
        attachments.extend(content)
        return place

    header = {
        "fragment": attach(plan.fragment),
        "inputs": [_source_to_json(source, attach) for source in plan.inputs],
        "output": _output_to_json(plan.output, attach),
        "partitions": plan.partitions,
        "column_names": list(plan.column_names),
        "conf": plan.conf,
        "metrics": plan.metrics,
        "made_by": asdict(plan.made_by or here()),
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return _PREFIX.pack(MAGIC, VERSION, len(text)) + text + bytes(attachments)


def decode(data: bytes) -> StagePlan:
    """Return the plan that `encode` wrote.

    Raises `VersionMismatchError` when *data* has another format version, or was made by other versions of Spark or the
    kernel and cannot be read, and ValueError when it is not a stage plan.
    """
    if len(data) < _PREFIX.size:
        raise ValueError(f"a stage plan has at least {_PREFIX.size} bytes, this has {len(data)}")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("these bytes are not a stage plan")
    start = _PREFIX.size + length
    made_by, header = _header(data[_PREFIX.size : start])
    if version != VERSION:
        by = "" if made_by is None else f", made by {made_by}"
        raise VersionMismatchError(
            f"the stage plan has version {version}{by}; this executor ({here()}) reads version {VERSION}"
        )
    try:
        return _plan(header, made_by, data, start)
    except (KeyError, TypeError, ValueError) as e:
        if is_elsewhere(made_by):
            raise VersionMismatchError(version_text(made_by, f"{type(e).__name__}: {e}")) from e
        raise


@cache
def here() -> MadeBy:
    """Return the versions of this process."""
    return MadeBy(str(pyspark.__version__), kernel_version())


def is_elsewhere(made_by: MadeBy | None) -> bool:
    """Return whether a plan was made by other versions than those of this process."""
    return made_by is not None and made_by != here()


def version_text(made_by: MadeBy | None, why: str) -> str:
    """Return the message that a plan made by *made_by* cannot run here."""
    return f"the stage was planned by {made_by}, and this executor ({here()}) cannot run it: {why}"


def _header(text: bytes) -> tuple[MadeBy | None, dict[str, Any]]:
    header = json.loads(text)
    made_by = header.get("made_by") if isinstance(header, dict) else None
    return MadeBy(str(made_by["spark"]), str(made_by["kernel"])) if made_by else None, header


def _plan(header: dict[str, Any], made_by: MadeBy | None, data: bytes, start: int) -> StagePlan:
    def attached(place: list[int]) -> bytes:
        offset, size = place
        return data[start + offset : start + offset + size]

    return StagePlan(
        fragment=attached(header["fragment"]),
        inputs=tuple(_source_from_json(source, attached) for source in header["inputs"]),
        output=_output_from_json(header["output"], attached),
        partitions=header["partitions"],
        column_names=tuple(header["column_names"]),
        conf=header["conf"],
        metrics=header.get("metrics", "rows"),
        made_by=made_by,
    )


def digest(data: bytes) -> str:
    """Return the digest under which the store keeps *data*: SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _source_to_json(source: StageSource, attach: Any) -> dict[str, Any]:
    match source:
        case ExchangeInput():
            described = {
                "kind": "exchange",
                "stage_id": source.stage_id,
                "reads_all": source.reads_all,
                "partitions": source.partitions,
                "is_sole_reader": source.is_sole_reader,
            }
            if source.ordering:  # a separate kind: a version that does not know ranges must not read buckets
                described |= {"kind": "ranges", "ordering": attach(source.ordering)}
            if source.by_producer:  # likewise
                described |= {"kind": "partitions"}
            return described
        case LeafInput():
            # A separate kind: a version that does not know portions cannot read its description either.
            kind = "growing" if source.grows else "leaf"
            return {"kind": kind, "description": attach(source.description), "label": source.label}


def _source_from_json(source: dict[str, Any], attached: Any) -> StageSource:
    if source["kind"] == "exchange":
        is_sole_reader = source.get("is_sole_reader", False)  # plans made before streams existed lack it
        return ExchangeInput(source["stage_id"], source["reads_all"], source["partitions"], is_sole_reader)
    if source["kind"] == "partitions":
        return ExchangeInput(source["stage_id"], reads_all=False, partitions=source["partitions"], by_producer=True)
    if source["kind"] == "ranges":
        ordering = attached(source["ordering"])
        return ExchangeInput(
            source["stage_id"], source["reads_all"], source["partitions"], source["is_sole_reader"], ordering
        )
    return LeafInput(attached(source["description"]), source["label"], grows=source["kind"] == "growing")


def _output_to_json(output: StageOutput, attach: Any) -> dict[str, Any]:
    kind = next(kind for kind, of in _OUTPUTS.items() if of is type(output))
    values = {each.name: getattr(output, each.name) for each in fields(output)}
    return {"kind": kind} | {name: attach(v) if isinstance(v, bytes) else v for name, v in values.items()}


def _output_from_json(output: dict[str, Any], attached: Any) -> StageOutput:
    kind, values = output["kind"], {name: value for name, value in output.items() if name != "kind"}
    if kind not in _OUTPUTS:
        raise ValueError(f"the stage plan has an output of unknown kind {kind!r}")
    return _OUTPUTS[kind](**{name: attached(v) if isinstance(v, list) else v for name, v in values.items()})
