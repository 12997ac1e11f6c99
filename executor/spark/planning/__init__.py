"""Planning: turns a job spec into stages."""

from onager.executor.spark.planning.plan_job import PlanTerms, plan_job
from onager.executor.spark.planning.replan import replan
