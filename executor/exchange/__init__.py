"""The files of jobs outside Spark: the exchange directory, staged datasets, and publishing them."""

from onager.executor.exchange.description import Description, describe, has_odd_keys, null_text, read_description
from onager.executor.exchange.directory import (
    check_exchange_dir,
    remove_job_data,
    remove_output,
    remove_staging,
    remove_table_folder,
    remove_unfinished,
)
from onager.executor.exchange.look import Contents, JobFiles, look_through
from onager.executor.exchange.publish import Manifest, carry_out, check_appended, check_target, plan_publish

__all__ = [
    "Contents",
    "Description",
    "JobFiles",
    "Manifest",
    "carry_out",
    "check_appended",
    "check_exchange_dir",
    "check_target",
    "describe",
    "has_odd_keys",
    "look_through",
    "null_text",
    "plan_publish",
    "read_description",
    "remove_job_data",
    "remove_output",
    "remove_staging",
    "remove_table_folder",
    "remove_unfinished",
]
