"""Find out whether a query, a function or a data source gives the same result when it runs distributed.

    from onager.testing import HarnessConfig, assert_distributed_eq

    def test_my_query(spark):
        assert_distributed_eq(spark.sql("select k, sum(v) from t group by k"))

One process, no cluster: the query is cut into stages as Onager cuts it, real executors over the session run their tasks
and exchange rows through files or streams, and the result is compared with plain Spark's. See docs/testing.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onager.testing.check import assert_distributed_eq
    from onager.testing.config import HarnessConfig
    from onager.testing.run import DistributedRun, DistributedRunError, TaskRun, run_distributed
    from onager.testing.stages import Stage, StageGraph, StageRead, create_stages

__all__ = [
    "DistributedRun",
    "DistributedRunError",
    "HarnessConfig",
    "Stage",
    "StageGraph",
    "StageRead",
    "TaskRun",
    "assert_distributed_eq",
    "create_stages",
    "run_distributed",
]

_MODULES = {
    "assert_distributed_eq": "check",
    "HarnessConfig": "config",
    "Stage": "stages",
    "StageGraph": "stages",
    "StageRead": "stages",
    "create_stages": "stages",
}


def __getattr__(name: str) -> Any:
    # Imported at first use: pytest loads this package's plugin in every run, whatever is tested.
    if name not in __all__:
        raise AttributeError(f"module 'onager.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"onager.testing.{_MODULES.get(name, 'run')}"), name)
    globals()[name] = value
    return value
