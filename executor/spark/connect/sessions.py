"""Sessions of Spark Connect, made anew from what is stored of them for every request.

What they hold is small, and Spark makes it fast; so no executor has to be the one that knows a session.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from onager.errors import PlanningError
from onager.exchange_layout import connect_artifact, has_scheme
from onager.executor.spark.kernel import JavaConnect
from onager.job_settings import PREFIX
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import Command, ExecutePlanRequest

_DEFAULT: Final = "default"


@contextmanager
def opened(message: pb.ConnectSession, session: SparkSession, exchange_dir: str) -> Iterator[JavaConnect]:
    """Yield what makes *session*, a new one, the stored session *message*; Spark's errors if that cannot be."""
    connect = JavaConnect(session, message.user)
    try:
        for artifact in message.artifacts:
            connect.add_artifact(artifact.name, _file_of(artifact, exchange_dir))
        lost = _make_again(message, session, connect)
        try:
            yield connect
        except (PySparkException, Py4JJavaError) as error:
            for name, why in lost.items():
                if f"`{name}`" in str(error).lower():
                    raise why from error
            raise
    finally:
        connect.close()


def _make_again(
    message: pb.ConnectSession, session: SparkSession, connect: JavaConnect
) -> dict[str, PySparkException | Py4JJavaError]:
    """Carry out the session's commands, each under what it had when it was made; return, by name, what could not be.

    A view of a table that was dropped since is an error only for who reads it.
    """
    lost: dict[str, PySparkException | Py4JJavaError] = {}
    under: Mapping[str, str] = {}
    for entry in message.entries:
        made = pb.ConnectMade.FromString(entry.command)
        under = _settings_changed(session, under, made.conf)
        connect.use(made.database or _DEFAULT)
        name = entry.name.partition("~")[0]
        try:
            connect.execute(request_of(made.command))
        except (PySparkException, Py4JJavaError) as error:
            lost[name] = error
        else:
            lost.pop(name, None)
    _settings_changed(session, under, message.conf)
    connect.use(message.database or _DEFAULT)
    return lost


def _settings_changed(session: SparkSession, before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    for key in before.keys() - after.keys():
        if not key.startswith(PREFIX):
            session.conf.unset(key)
    for key, value in sorted(after.items()):
        if not key.startswith(PREFIX) and before.get(key) != value:
            session.conf.set(key, value)
    return after


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
