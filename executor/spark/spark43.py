"""Every call into Spark from Python whose shape changes between minor versions (the kernel has ``Spark43.java``)."""

import pyspark

from onager.errors import VersionMismatchError

TESTED = ("4.3",)
"""Minor versions of Spark against which these calls are tested."""


def check_spark_version() -> str:
    """Return the version of the installed Spark; raises `VersionMismatchError` when it is not a tested one."""
    version = str(pyspark.__version__)
    if not version.startswith(tuple(f"{minor}." for minor in TESTED)):
        raise VersionMismatchError(f"PySpark {version} is installed, but this Onager runs on {', '.join(TESTED)}")
    return version
