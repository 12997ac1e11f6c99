"""Bugs of jobs that take outputs of others; see `planted`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from onager.scheduler.jobs.job_heads import JobHeads


def _readers_are_not_awaited() -> AbstractContextManager[Any]:
    """Files of which nobody may take any more are removed while jobs read them."""
    return mock.patch.object(JobHeads, "may_be_read", return_value=False)


OF_REUSE: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "readers-not-awaited": _readers_are_not_awaited,
}
