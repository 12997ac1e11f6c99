"""The files of jobs outside Spark: the exchange directory, staged datasets, and publishing them."""

from executor.exchange.directory import check_exchange_dir, remove_job_data, remove_staging
from executor.exchange.publish import Manifest, carry_out, check_target, plan_publish

__all__ = [
    "Manifest",
    "carry_out",
    "check_exchange_dir",
    "check_target",
    "plan_publish",
    "remove_job_data",
    "remove_staging",
]
