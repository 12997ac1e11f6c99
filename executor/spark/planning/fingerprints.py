"""Fingerprints of stages: equal ones give the same rows, so one need not be computed if the other's output lies there.

Hashed are the operators and expressions (Java's `Fingerprint`), the inputs (files by path, size and time; rows; other
stages by their fingerprints), the settings, and the versions of Spark and of the kernel.
"""

import hashlib
import json
from collections.abc import Sequence

from onager.caches import cache_fingerprint
from onager.executor.spark import plan_codec
from onager.executor.spark.stage_plan import (
    ExchangeInput,
    SortedOutput,
    StageOutput,
    StagePlan,
    StageSource,
    buckets_of,
)


def fingerprint(plan: StagePlan, fragment: str, inputs: Sequence[str]) -> str:
    """Return the fingerprint of *plan*, by those of its fragment and of its inputs."""
    content = {
        "made_by": str(plan_codec.here()),
        "fragment": fragment,
        "inputs": [[mine, *_read(source)] for mine, source in zip(inputs, plan.inputs, strict=True)],
        "output": _output(plan.output),
        "partitions": plan.partitions,
        "conf": dict(plan.conf),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cached_fingerprint(cache_id: str, inputs: Sequence[str], partitions: int) -> str:
    """Return the fingerprint of the rows of what a program caches, by the digests of its *inputs*.

    What computes them is not in it: these rows stay, even if computing them again would give others.
    """
    content = {"made_by": str(plan_codec.here()), "inputs": sorted(inputs), "partitions": partitions}
    return cache_fingerprint(cache_id, hashlib.sha256(json.dumps(content).encode()).hexdigest())


def _read(source: StageSource) -> list[object]:
    if not isinstance(source, ExchangeInput):
        return []
    return [source.reads_all, source.partitions, bool(source.ordering), *(["cached"] if source.by_producer else [])]


def _output(output: StageOutput) -> list[object]:
    """Return how rows are distributed; by which expression is in the digest of the fragment."""
    samples = output.samples if isinstance(output, SortedOutput) else 0
    return [type(output).__name__, buckets_of(output), samples]
