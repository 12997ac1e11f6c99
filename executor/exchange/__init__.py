"""The files of jobs outside Spark: the exchange directory, staged datasets, and publishing them."""

from executor.exchange.directory import (
    check_exchange_dir,
    remove_job_data,
    remove_output,
    remove_staging,
    remove_unfinished,
)
from executor.exchange.look import Contents, JobFiles, look_through
from executor.exchange.publish import Manifest, carry_out, check_target, plan_publish

__all__ = [
    "Contents",
    "JobFiles",
    "Manifest",
    "carry_out",
    "check_exchange_dir",
    "check_target",
    "look_through",
    "plan_publish",
    "remove_job_data",
    "remove_output",
    "remove_staging",
    "remove_unfinished",
]
