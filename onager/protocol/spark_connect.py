"""Spark Connect's protocol, without PySpark: its messages, made of the descriptors that PySpark has.

Relations and expressions are bytes here. Schedulers pass them on to Spark, and need not know what is in them; so no
nesting of a plan, however deep, is anything to them.

The messages are in a pool of their own, so that a process that has imported PySpark, too, meets no name twice.
`onager.protocol.generate` copies the descriptors. Source: Apache Spark 4.3, ``sql/connect/common``, Apache License 2.0.
"""

from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

SERVICE: Final = "spark.connect.SparkConnectService"
CHECKPOINT: Final = "checkpoint"
"""The work of a job that makes a checkpoint."""
SCRIPT: Final = "script"
"""The work of a job that is a script of SQL (BEGIN … END): a program, which the executor does not plan."""
KEPT: Final = "relation"
"""The kind of the entry that a checkpoint is in its session; its name is the id of the relation, and of that job."""
CACHE: Final = "cache"
"""The kind of the entry that a cached DataFrame is in its session; its name is the cache's id."""
_OPAQUE: Final = (".spark.connect.Relation", ".spark.connect.Expression")


def _close(message: DescriptorProto) -> None:
    """Make bytes of all that nests; on the wire it is the same."""
    for field in message.field:
        if field.type_name in _OPAQUE:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
    for nested in message.nested_type:
        _close(nested)


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(Path(__file__).with_name("spark_connect.binpb").read_bytes()).file:
        for each in file.message_type:
            _close(each)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_known: Final = _pool()
METHODS: Final[dict[str, Any]] = {method.name: method for method in _known.FindServiceByName(SERVICE).methods}
"""The methods of the service, by name."""


def message(name: str) -> Any:
    """Return the class of the message *name* of the package ``spark.connect``, such as ``Plan``."""
    return message_factory.GetMessageClass(_known.FindMessageTypeByName(f"spark.connect.{name}"))


def request_of(method: str) -> Any:
    """Return the class of the requests of *method*."""
    return message_factory.GetMessageClass(METHODS[method].input_type)


def answer_of(method: str) -> Any:
    """Return the class of the answers to *method*."""
    return message_factory.GetMessageClass(METHODS[method].output_type)


AddArtifactsResponse: Final = message("AddArtifactsResponse")
AnalyzePlanRequest: Final = message("AnalyzePlanRequest")
AnalyzePlanResponse: Final = message("AnalyzePlanResponse")
ArtifactStatusesResponse: Final = message("ArtifactStatusesResponse")
CloneSessionResponse: Final = message("CloneSessionResponse")
Command: Final = message("Command")
ConfigRequest: Final = message("ConfigRequest")
ConfigResponse: Final = message("ConfigResponse")
DataType: Final = message("DataType")
ExecutePlanRequest: Final = message("ExecutePlanRequest")
ExecutePlanResponse: Final = message("ExecutePlanResponse")
Expression: Final = message("Expression")
FetchErrorDetailsResponse: Final = message("FetchErrorDetailsResponse")
GetStatusResponse: Final = message("GetStatusResponse")
InterruptResponse: Final = message("InterruptResponse")
Relation: Final = message("Relation")
ReleaseExecuteResponse: Final = message("ReleaseExecuteResponse")
ReleaseSessionResponse: Final = message("ReleaseSessionResponse")
StorageLevel: Final = message("StorageLevel")
