"""Decides how many tasks a job gets, and whether it runs as a single stage."""

from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

from onager.errors import InvalidSettingError, VersionMismatchError
from onager.executor.spark.stage_plan import MetricsWanted
from onager.job_settings import (
    FEED_FROM_FILES,
    FUSION_MAX_BYTES,
    METRICS,
    SHUFFLE_TARGET_BYTES,
    SORT_PARALLEL_FROM_BYTES,
    bytes_of,
    whole_number,
)

MIB = 1024 * 1024
_MAX_FILES = 1_000_000

DEFAULTS: dict[str, int] = {
    FUSION_MAX_BYTES: 16 * MIB,
    SHUFFLE_TARGET_BYTES: 64 * MIB,
    SORT_PARALLEL_FROM_BYTES: 128 * MIB,
}
"""Defaults of Onager's own settings of a job, in bytes."""

HASHED_BYTES = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
"""How much of one side of a sort-merge join a task may put into a hash table instead; 0: never."""
MAX_HASHED_BYTES = 32 * MIB
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
LEAF_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
MIN_SPLITS = "spark.sql.files.minPartitionNum"
MAX_SHUFFLE_PARTITIONS = 200
WORTH_A_TASK_BYTES = MIB
"""With fewer bytes per slot than this, fewer slots are used."""

MAX_SAMPLES = 1 << 19
"""About how many keys are sampled of all sorted runs of a stage."""

CUT_SETTINGS: dict[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.removeRedundantProjects": "false",
    # Above placeholders, a union does not keep its children's partitioning, but Spark would omit an exchange that
    # relies on it.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.sources.bucketing.enabled": "false",
    "spark.sql.sources.v2.bucketing.enabled": "false",
    # Rows with null keys would be assigned by a counter instead of by their values.
    "spark.sql.shuffle.spreadNullJoinKeys.enabled": "false",
    "spark.sql.optimizer.singleTaskExecution.enabled": "false",
}
"""The settings under which a plan can be cut; they override the job's own settings."""


def check_settings_known(session: SparkSession) -> None:
    """Raise `VersionMismatchError` unless Spark knows all settings used here; it ignores unknown ones."""
    needed = (*CUT_SETTINGS, HASHED_BYTES, SHUFFLE_PARTITIONS, LEAF_PARALLELISM, MIN_SPLITS)
    if unknown := [key for key in needed if not session.conf.isModifiable(key)]:
        raise VersionMismatchError(
            f"Spark {pyspark.__version__} has no setting {', '.join(unknown)}: this Onager cannot run on it"
        )


def setting_bytes(conf: Mapping[str, str], name: str) -> int:
    """Return the setting *name* of Onager: a number of bytes, optionally with k, m or g.

    Raises `InvalidSettingError` when it is not one.
    """
    return bytes_of(conf, name, DEFAULTS[name])


def metrics_wanted(conf: Mapping[str, str]) -> MetricsWanted:
    """Return which metrics of operators tasks report; raises `InvalidSettingError` for an unknown word."""
    match conf.get(METRICS, "").strip().lower() or "rows":
        case "off" | "rows" | "full" as wanted:
            return wanted
        case _:
            raise InvalidSettingError(METRICS, conf[METRICS], "give off, rows or full")


def feed_from_files(conf: Mapping[str, str]) -> int:
    """Return from how many files on a directory is read while it is still being listed; 0: never.

    Raises `InvalidSettingError` when it is not a number.
    """
    text = conf.get(FEED_FROM_FILES, "").strip() or "0"
    found = whole_number(text, _MAX_FILES)
    if found is None:
        raise InvalidSettingError(FEED_FROM_FILES, text, f"give a whole number of files, up to {_MAX_FILES}; 0: never")
    return found


def shuffle_partitions(input_bytes: int, target_bytes: int, cluster_slots: int) -> int:
    """Return how many buckets an exchange gets in a query that reads *input_bytes* (-1: unknown).

    All slots of the cluster get about the same work, unless there is too little of it; at most 200, as in plain Spark.
    """
    slots = max(cluster_slots, 1)
    if input_bytes < 0:
        return max(slots, 1)
    by_target = -(-input_bytes // max(target_bytes, 1))
    worth = -(-input_bytes // WORTH_A_TASK_BYTES)
    if by_target > slots:
        by_target = -(-by_target // slots) * slots  # a partial last round would leave slots idle
    return min(max(by_target, min(slots, worth), 1), MAX_SHUFFLE_PARTITIONS)


def sizes(conf: Mapping[str, str], given: Mapping[str, str], input_bytes: int, cluster_slots: int) -> dict[str, str]:
    """Return the settings that size a job's tasks, except those in *given*; *conf* is the job's."""
    slots = max(cluster_slots, 1)
    target = setting_bytes(conf, SHUFFLE_TARGET_BYTES)
    made = {
        SHUFFLE_PARTITIONS: str(shuffle_partitions(input_bytes, target, slots)),
        LEAF_PARALLELISM: str(slots),
        MIN_SPLITS: str(slots),
        HASHED_BYTES: str(MAX_HASHED_BYTES),
    }
    return {key: value for key, value in made.items() if key not in given}


def samples_of_run(runs: int) -> int:
    """Return how many keys to sample per run, so that the samples of *runs* sorted runs fit one task's memory."""
    return min(max(MAX_SAMPLES // max(runs, 1) & ~1, 64), 1024)


def is_single_stage(conf: Mapping[str, str], input_bytes: int) -> bool:
    """Return whether a query that reads *input_bytes* (-1: unknown) should run as a single stage."""
    most = setting_bytes(conf, FUSION_MAX_BYTES)
    return most > 0 and 0 <= input_bytes <= most
