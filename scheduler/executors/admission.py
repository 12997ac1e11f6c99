"""Which executors a scheduler admits: those that speak its protocol, fit the others, and were not replaced."""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from onager.errors import ExecutorReplacedError, InvalidRequestError, VersionMismatchError
from onager.ids import MAX_EXECUTOR_ID_LENGTH, is_executor_id, is_life
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_SLOTS
from onager.protocol.limits import PROTOCOL_VERSION
from onager.protocol.security.places import is_loopback
from onager.scheduler.executors.records import ExecutorRecord

_ADDRESS: Final = re.compile(r"\S+:[1-9]\d{0,4}")
_REPLACED_REMEMBERED: Final = 1024


class Admission:
    """Checks registrations."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._replaced: OrderedDict[tuple[str, str], None] = OrderedDict()

    def replaced(self, record: ExecutorRecord) -> None:
        """Note that another life took over the id of *record*: the old one does not come back.

        Otherwise two running executors of one id would keep replacing each other.
        """
        self._replaced[record.executor_id, record.incarnation] = None
        while len(self._replaced) > _REPLACED_REMEMBERED:
            self._replaced.popitem(last=False)

    def check(self, request: pb.RegisterExecutorRequest, others: Iterable[ExecutorRecord]) -> None:
        """Raise unless *request* can be admitted beside *others*, the executors that are not lost.

        `VersionMismatchError` when it speaks another protocol or another minor version of Spark or Python than they do,
        `ExecutorReplacedError` when a later process registered under its id, `InvalidRequestError` for a wrong field.
        """
        name = request.executor_id
        if request.protocol_version != PROTOCOL_VERSION:
            raise VersionMismatchError(
                f"executor {name} speaks version {request.protocol_version} of the protocol, and this "
                f"scheduler version {PROTOCOL_VERSION}: run the same Onager on both sides"
            )
        if not is_executor_id(name):
            raise InvalidRequestError(
                f"an executor id has 1 to {MAX_EXECUTOR_ID_LENGTH} printable characters and no slash, "
                f"not {name[:200]!r}"
            )
        if not is_life(request.incarnation):
            raise InvalidRequestError(
                f"executor {name} gave {request.incarnation[:200]!r} as its incarnation: 1 to 64 of a-z A-Z 0-9 _ -"
            )
        if (name, request.incarnation) in self._replaced:
            raise ExecutorReplacedError(name)
        if not 1 <= request.slots <= MAX_SLOTS:
            raise InvalidRequestError(f"executor {name} has {request.slots} slots; give 1 to {MAX_SLOTS}")
        if request.mode not in ("", "pull", "push"):
            raise InvalidRequestError(f"executor {name} wants mode {request.mode!r}; use pull or push")
        if request.mode == "push":
            self._check_push(request)
        if request.stream_address and not _ADDRESS.fullmatch(request.stream_address):
            raise InvalidRequestError(
                f"executor {name} gave {request.stream_address!r} as its address for streams; give HOST:PORT"
            )
        _check_versions(request, {_versions(r) for r in others if r.executor_id != name})

    def _check_push(self, request: pb.RegisterExecutorRequest) -> None:
        name = request.executor_id
        if not _ADDRESS.fullmatch(request.address):
            raise InvalidRequestError(
                f"executor {name} is in push mode and gave no address to be sent work at, but {request.address!r}; "
                "give --advertise HOST:PORT"
            )
        if is_loopback(request.address) and request.machine not in ("", self._machine):
            raise InvalidRequestError(
                f"executor {name} is in push mode on another machine than this scheduler, and gave {request.address}, "
                "an address of the scheduler's own machine; give --listen and --advertise HOST:PORT, or --mode pull"
            )


def _check_versions(request: pb.RegisterExecutorRequest, others: set[tuple[str, str]]) -> None:
    if not others or (_minor(request.spark_version), request.python_version) in others:
        return
    spark, python = min(others)
    raise VersionMismatchError(
        f"executor {request.executor_id} runs Spark {request.spark_version} with Python {request.python_version}, and "
        f"the others of this cluster Spark {spark} with Python {python}: plans and functions need the same; stop "
        "the others first, or install the same versions here"
    )


def _versions(record: ExecutorRecord) -> tuple[str, str]:
    return _minor(record.spark_version), record.python_version


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
