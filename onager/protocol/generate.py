"""Generate the stubs beside `onager.proto`: ``python -m onager.protocol.generate``, or ``make protocol``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def generate(out: Path = ROOT) -> None:
    """Write ``onager_pb2.py``, ``.pyi`` and ``onager_pb2_grpc.py`` below *out*; needs ``grpcio-tools``."""
    from grpc_tools import protoc

    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        f"--grpc_python_out={out}",
        str(HERE / "onager.proto"),
    ]
    status = protoc.main(arguments)
    if status != 0:
        sys.exit(status)


if __name__ == "__main__":
    generate()
