"""Generate the stubs beside the ``.proto`` files: ``python -m onager.protocol.generate``, or ``make protocol``.

And copy the descriptors of Spark Connect's protocol out of the installed PySpark, for processes without PySpark.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROTOCOLS = ("onager", "externalscaler")
_NOTE = """\
# Each base class refuses all its methods as not implemented, for services that leave some out. Onager's services
# override every one: tests/unit/protocol/test_every_method.py.
"""


def generate(out: Path = ROOT) -> None:
    """Write ``…_pb2.py``, ``.pyi`` and ``…_pb2_grpc.py`` of each protocol below *out*; needs ``grpcio-tools``."""
    from grpc_tools import protoc

    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        f"--grpc_python_out={out}",
        *(str(HERE / f"{name}.proto") for name in PROTOCOLS),
    ]
    status = protoc.main(arguments)
    if status != 0:
        sys.exit(status)
    for name in PROTOCOLS:
        stubs = out / HERE.relative_to(ROOT) / f"{name}_pb2_grpc.py"
        first, rest = stubs.read_text().split("\n", 1)
        stubs.write_text(f"{first}\n{_NOTE}{rest}")


def spark_connect() -> bytes:
    """Return the descriptors of Spark Connect's protocol, of the installed PySpark; needs ``grpcio-status``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    base_pb2 = import_module("pyspark.sql.connect.proto.base_pb2")
    found: dict[bytes, None] = {}

    def add(file: Any) -> None:
        for needed in file.dependencies:
            add(needed)
        found[file.serialized_pb] = None

    add(base_pb2.DESCRIPTOR)
    files = FileDescriptorSet()
    for content in found:
        files.file.add().ParseFromString(content)
    return files.SerializeToString(deterministic=True)


if __name__ == "__main__":
    generate()
    (HERE / "spark_connect.binpb").write_bytes(spark_connect())
