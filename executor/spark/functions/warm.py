"""The warm process, from which the processes of functions are forked: what it has imported."""

import importlib
import sys
from typing import Final

from onager.executor.warm.serving import serve_warm

IMPORTED: Final = (
    "pandas",
    "pyarrow",
    "pyspark.accumulators",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.conversion",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.udtf",
)
"""The modules that most functions need. They start no Python threads; pyarrow's and numpy's threads are fork-safe."""


def main(control: int) -> None:
    """Import, then serve the socket *control*."""
    from onager.executor.spark.functions import guard
    from onager.executor.spark.functions.child import answer_and_end

    for name in IMPORTED:
        importlib.import_module(name)
    guard.install()
    channel = serve_warm(control)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.modules["numpy"].random.seed()  # Python's own generator reseeds after a fork
    answer_and_end(channel)
