"""The files of jobs outside Spark: the exchange directory, staged datasets, and publishing them."""

from onager.executor.exchange.description import Description, describe, has_odd_keys, null_text, read_description
from onager.executor.exchange.directory import (
    check_exchange_dir,
    remove_job_data,
    remove_output,
    remove_staging,
    remove_unfinished,
)
from onager.executor.exchange.look import Contents, JobFiles, look_through
from onager.executor.exchange.partitions import HeldPartitions, held_partitions
from onager.executor.exchange.publish import carry_out, check_appended, check_target, plan_publish
from onager.executor.exchange.table_folders import remove_table_folder
from onager.executor.exchange.taking_back import take_back
