"""Planning: turns a job spec into stages."""

from onager.executor.spark.planning.plan_job import ArrowSchema, CallFunction, FusedRun, RunFused, plan_job
from onager.executor.spark.planning.replan import replan

__all__ = ["ArrowSchema", "CallFunction", "FusedRun", "RunFused", "plan_job", "replan"]
