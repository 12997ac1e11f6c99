"""Bugs in how the rest of a job is planned again; see `planted`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock


def _dropped_stages_stay() -> AbstractContextManager[Any]:
    """Stages that the new plan does without go on."""
    return mock.patch("onager.execution_graph.replanned.superseded", lambda stage, _: stage)


@contextmanager
def _changed_basis_counts() -> Iterator[None]:
    """A new plan is taken whatever became of the stages that it is based on."""
    with (
        mock.patch("onager.execution_graph.replanned.is_as_it_was", return_value=True),
        mock.patch("onager.execution_graph.replanning.is_as_it_was", return_value=True),
    ):
        yield


OF_REPLANS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "dropped-stages-stay": _dropped_stages_stay,
    "changed-basis-counts": _changed_basis_counts,
}
