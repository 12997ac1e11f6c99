"""The pytest plugin, found automatically where Onager is installed: fixtures for tests of queries.

    def test_my_query(spark, assert_distributed_eq):
        assert_distributed_eq(spark.sql("select k, sum(v) from t group by k"), channel_frames=1)

`spark` is the project's own fixture. Its own fixture `onager_config` changes the defaults for all tests.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from onager.testing.config import HarnessConfig
    from onager.testing.run import DistributedRun


class AssertDistributedEq(Protocol):
    """Fails unless a query gives the same rows distributed as in plain Spark."""

    def __call__(self, frame: Any, **changes: Any) -> "DistributedRun":
        """Check the query of *frame*; *changes* are fields of `HarnessConfig` that differ from `onager_config`."""
        ...


@pytest.fixture
def onager_config() -> "HarnessConfig":
    """Return how queries run distributed; override it to change the defaults of a project or a module."""
    from onager.testing.config import HarnessConfig

    return HarnessConfig()


@pytest.fixture
def assert_distributed_eq(onager_config: "HarnessConfig") -> AssertDistributedEq:
    """Return `onager.testing.assert_distributed_eq` under `onager_config`."""
    from onager.testing import assert_distributed_eq as check

    def run(frame: Any, **changes: Any) -> "DistributedRun":
        __tracebackhide__ = True
        return check(frame, dataclasses.replace(onager_config, **changes))

    return run
