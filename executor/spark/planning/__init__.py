"""From a job spec to stages: the job's session, its query, the cut, and the sizes."""

from onager.executor.spark.planning.plan_job import ArrowSchema, CallFunction, FusedRun, RunFused, plan_job

__all__ = ["ArrowSchema", "CallFunction", "FusedRun", "RunFused", "plan_job"]
