"""Which of many cases that are much alike a run takes: some, or all with ``ONAGER_TESTS=all`` (`make test-all`)."""

import os
from collections.abc import Iterable
from typing import TypeVar

IS_ALL = os.environ.get("ONAGER_TESTS") == "all"


Case = TypeVar("Case")


def some(cases: Iterable[Case], one_in: int = 3) -> list[Case]:
    """Return every *one_in*-th case, the same ones each time; in a run of all tests, all."""
    return list(cases)[:: 1 if IS_ALL else one_in]
