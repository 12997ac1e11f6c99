"""How long planning a job takes, apart from running it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from pyspark.sql import DataFrame

from onager.clock import Clock
from onager.protocol import onager_pb2 as pb


class PlanTimes:
    """The times of one planning task, which begins now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._function_ms = 0

    @contextmanager
    def of_function(self, called: AbstractContextManager[DataFrame]) -> Iterator[DataFrame]:
        """Call the job's function by entering *called*, and measure how long it takes to return its query."""
        begun_s = self._clock.monotonic_s()
        with called as frame:
            self._function_ms = self._since_ms(begun_s)
            yield frame

    def success(self, outcome: pb.PlanOutcome) -> pb.TaskSuccess:
        """Return the success of a task that has planned *outcome*, and perhaps run it, with its times."""
        success = pb.TaskSuccess(plan=outcome)
        planned_ms = self._since_ms(self._begun_s)
        if outcome.HasField("fused_output"):
            metrics = success.plan.fused_metrics
            metrics.plan_ms = max(0, planned_ms - metrics.run_ms)
            metrics.function_ms = min(self._function_ms, metrics.plan_ms)
        else:
            success.metrics.run_ms = max(1, planned_ms)
            success.metrics.function_ms = min(self._function_ms, success.metrics.run_ms)
        return success

    def _since_ms(self, begun_s: float) -> int:
        return round(1000 * (self._clock.monotonic_s() - begun_s))
