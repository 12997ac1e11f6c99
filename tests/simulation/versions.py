"""Schedulers of the version before, in a rolling upgrade: what they do not know, they do not write, read or tell.

All processes of a simulation run the same modules, so what differs is decided by who is running. The version before
reads records of the first major version alone, ignores fields that were added since, and knows no second attempts, no
streaming, and no stages that are laid out by what was measured. Whatever it does, it writes no newer record.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from onager.errors import SchemaVersionError
from onager.execution_graph import ExecutionGraph, codec
from onager.scheduler.cluster.members import SchedulerRecord
from onager.scheduler.engine import new_jobs
from onager.scheduler.jobs import job_log
from tests.simulation.loop import current

OLD_MAJOR = 1

_check_readable = codec.check_readable
_encode = codec._encode
_decoding_graph = job_log.decoding_graph
_speculation_of = new_jobs.speculation_of
_pipeline_of = new_jobs.pipeline_of
_adaptive_of = new_jobs.adaptive_of


def old_registration(record: SchedulerRecord) -> SchedulerRecord:
    """Return what a scheduler of the version before tells of itself."""
    return record.model_copy(update={"reads_major": OLD_MAJOR, "version": "0.0"})


@contextmanager
def two_versions(fail: Callable[[str], None]) -> Iterator[None]:
    """Let processes that are old behave so; call *fail* when one writes what only a newer version knows."""

    def encoded(body: str, major: int) -> bytes:
        if major > OLD_MAJOR and _is_old():
            fail(f"{current()} is of the version before, and writes a record of version {major}")
        return _encode(body, major)

    with ExitStack() as stack:
        for target, replacement in (
            ("onager.execution_graph.codec.check_readable", _readable_checked),
            ("onager.scheduler.engine.reports.check_readable", _readable_checked),
            ("onager.execution_graph.codec._encode", encoded),
            ("onager.scheduler.jobs.job_log.decoding_graph", _graph_decoded),
            ("onager.scheduler.engine.new_jobs.speculation_of", _speculation_read),
            ("onager.scheduler.engine.new_jobs.pipeline_of", _pipeline_read),
            ("onager.scheduler.engine.new_jobs.adaptive_of", _adaptive_read),
        ):
            stack.enter_context(mock.patch(target, replacement))
        yield


def _is_old() -> bool:
    return current().is_old


def _readable_checked(major: int, minor: int, what: str) -> None:
    _check_readable(major, minor, what)
    if major > OLD_MAJOR and _is_old():
        raise SchemaVersionError(what, f"{major}.{minor}", f"{OLD_MAJOR}.0")


def _graph_decoded(data: bytes) -> Generator[None, None, ExecutionGraph]:
    graph = yield from _decoding_graph(data)
    return replace(graph, speculation=None, pipeline=None, adaptive=None) if _is_old() else graph


def _speculation_read(spec: Any) -> Any:
    return None if _is_old() else _speculation_of(spec)


def _adaptive_read(spec: Any, *how: int) -> Any:
    return None if _is_old() else _adaptive_of(spec, *how)


def _pipeline_read(spec: Any, *how: int) -> Any:
    return None if _is_old() else _pipeline_of(spec, *how)
