"""Sessions of Spark Connect, made anew from what is stored of them for every request.

What they hold is small, and Spark makes it fast; so no executor has to be the one that knows a session.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import connect_artifact, has_scheme
from onager.executor.spark.kernel import JavaConnect
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import Command, ExecutePlanRequest


@contextmanager
def opened(message: pb.ConnectSession, session: SparkSession, exchange_dir: str) -> Iterator[JavaConnect]:
    """Yield what makes *session*, a new one, the stored session *message*; Spark's errors if that cannot be."""
    for key, value in sorted(message.conf.items()):
        if not key.startswith(PREFIX):
            session.conf.set(key, value)
    connect = JavaConnect(session, message.user)
    try:
        for artifact in message.artifacts:
            connect.add_artifact(artifact.name, _file_of(artifact, exchange_dir))
        for entry in message.entries:
            connect.execute(request_of(entry.command))
        if message.database:
            connect.use(message.database)
        yield connect
    finally:
        connect.close()


def request_of(command: bytes) -> bytes:
    """Return the request that carries out an encoded command."""
    request = ExecutePlanRequest()
    request.plan.command.CopyFrom(Command.FromString(command))
    return bytes(request.SerializeToString())


def _file_of(artifact: pb.ConnectArtifact, exchange_dir: str) -> Path:
    if has_scheme(exchange_dir):
        raise PlanningError(
            f"the file {artifact.name} cannot be read: sessions have files only where the exchange directory is a "
            "path that all executors share"
        )
    return Path(exchange_dir, connect_artifact(artifact.digest))
