"""The warm process, from which the processes of programs are forked: it has imported PySpark's client."""

import importlib
import json
import os
import socket
import sys
import time
from typing import Any, Final

from onager.executor.warm.serving import serve_warm
from onager.private_process import hide_process

IMPORTED: Final = (
    "numpy",
    "pandas",
    "pyarrow",
    "grpc",
    "pyspark.cloudpickle.cloudpickle",
    "pyspark.sql.connect.client.core",
    "pyspark.sql.connect.dataframe",
    "pyspark.sql.connect.functions.builtin",
    "pyspark.sql.connect.observation",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.sql_formatter",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.window",
    "onager.programs.__main__",
)
"""What programs need. None of it starts a thread before it is used."""
_MOST_BYTES: Final = 16 * 1024 * 1024
DESCRIPTORS: Final = 3
"""Standard output, standard error, and the pipe for frames."""


def main(control: int) -> None:
    """Import, then serve the socket *control*; in a child, run a program."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # PySpark looks when it is imported
    for name in IMPORTED:
        importlib.import_module(name)
    hide_process()
    with serve_warm(control) as channel:
        given, descriptors = _received(channel)
    _begin(given, *descriptors)


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what the agent sends: JSON until it says no more, and descriptors."""
    content, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, DESCRIPTORS)
    parts = [content]
    while content := channel.recv(_MOST_BYTES):
        parts.append(content)
    if not descriptors:
        os._exit(0)  # the agent is gone
    return json.loads(b"".join(parts)), descriptors


def _begin(given: dict[str, Any], stdout: int, stderr: int, frames: int) -> None:
    """Become the process of the program, and end with its exit code."""
    from onager.programs.__main__ import run
    from onager.programs.terms import Terms

    for descriptor, number in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.environ.pop("PYTHONHASHSEED", None)
    time.tzset()
    os.chdir(given["work"])
    sys.path[1:1] = given["imported"]
    sys.exit(run(Terms(**given["terms"], output=frames), given["path"], given["arguments"]))
