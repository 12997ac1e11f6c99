"""The stored record of an executor that registers."""

from onager.protocol import onager_pb2 as pb
from onager.scheduler.executors.place_records import PlaceClaim
from onager.scheduler.executors.records import ExecutorRecord
from onager.state_backend import LeaseId


def registered_record(
    request: pb.RegisterExecutorRequest, before: ExecutorRecord | None, *, lease_id: LeaseId, now_ms: int
) -> ExecutorRecord:
    """Return the record of the life that *request* registers; *before* is the one that is stored, if any."""
    return ExecutorRecord(
        executor_id=request.executor_id,
        incarnation=request.incarnation,
        host=request.host,
        pid=request.pid,
        slots=request.slots,
        spark_version=request.spark_version,
        python_version=request.python_version,
        exchange_dir=request.exchange_dir,
        registered_ms=now_ms,
        lease_id=lease_id,
        mode="push" if request.mode == "push" else "pull",
        address=request.address,
        stream_address=request.stream_address,
        machine=request.machine,
        features=tuple(request.features),
        lost_before=_why_lost(before, request.incarnation),
        places=_claims(request, before),
        runs_programs=request.runs_programs,
    )


def _why_lost(before: ExecutorRecord | None, incarnation: str) -> str:
    """Return why the life *before* that of *incarnation* was lost; empty if it was not, or the life is the same."""
    if before is None or before.incarnation == incarnation:
        return "" if before is None else before.lost_before
    return before.reason or "" if before.state == "lost" and not before.has_left else ""


def _claims(request: pb.RegisterExecutorRequest, before: ExecutorRecord | None) -> dict[str, PlaceClaim]:
    """Return what an executor that registers claims to see: as it is known, if this life has registered before."""
    is_same = before is not None and before.incarnation == request.incarnation
    known = before.places if before is not None and is_same else {}
    claims = {view.name: PlaceClaim(path=view.path, mark=view.mark) for view in request.places}
    return {name: known.get(name, claim) for name, claim in claims.items()}
