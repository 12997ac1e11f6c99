"""Generate the stubs beside the ``.proto`` files: ``python -m onager.protocol.generate``, or ``make protocol``."""

import sys
from pathlib import Path

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


if __name__ == "__main__":
    generate()
