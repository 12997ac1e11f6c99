"""A job as Spark's History Server reads it: jobs, stages, tasks and executors as events, one JSON object a line."""

from onager.scheduler.api.spark_log.log import lines
from onager.scheduler.api.spark_log.plan import Known, chosen

__all__ = ["Known", "chosen", "lines"]
