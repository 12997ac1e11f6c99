"""KEDA's external scaler, on an address of its own: how many slots are wanted, so how many executors there should be.

Every scheduler answers alike: it knows all active jobs by their heads, and what they have to do by what their drivers
tell it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import structlog

from onager.errors import InvalidRequestError, InvalidSettingError
from onager.protocol import externalscaler_pb2 as pb
from onager.protocol.border import Border
from onager.protocol.call_limits import SCALER_BYTES
from onager.protocol.externalscaler_pb2_grpc import (
    ExternalScalerServicer,
    add_ExternalScalerServicer_to_server,
)
from onager.protocol.limits import SERVER_OPTIONS
from onager.protocol.security import ServerAccess
from onager.protocol.status import abort
from onager.scheduler.app import SchedulerApp
from onager.scheduler.cluster.job_loads import JobLoads
from onager.scheduler.jobs.job_heads import JobHeads
from onager.scheduler.policy.slots_wanted import slots_wanted
from onager.scheduler.settings import SchedulerSettings

log = structlog.get_logger(__name__)

METRIC: Final = "onager_slots_wanted"
SLOTS_PER_EXECUTOR: Final = "slotsPerExecutor"
"""The entry of a trigger's metadata that says how many slots one scheduler has; 1 without it."""
_MAX_SLOTS: Final = 100_000


class ScalerService(ExternalScalerServicer):  # type: ignore[misc]
    """Answers KEDA."""

    def __init__(self, heads: JobHeads, loads: JobLoads) -> None:
        self._heads = heads
        self._loads = loads
        self._was_active = heads.has_active
        self._streams: set[asyncio.Event] = set()
        heads.listen(lambda *_: self._look())

    def _look(self) -> None:
        if self._heads.has_active is not self._was_active:
            self._was_active = self._heads.has_active
            for changed in self._streams:
                changed.set()

    async def IsActive(self, request: pb.ScaledObjectRef, context: Any) -> pb.IsActiveResponse:  # noqa: N802
        """Return whether there are jobs that have not ended."""
        del request, context
        return pb.IsActiveResponse(result=self._heads.has_active)

    async def StreamIsActive(self, request: pb.ScaledObjectRef, context: Any) -> None:  # noqa: N802
        """Tell the same now, and whenever it changes."""
        del request
        changed, sent = asyncio.Event(), None
        self._streams.add(changed)
        try:
            while True:
                if (is_active := self._heads.has_active) is not sent:
                    await context.write(pb.IsActiveResponse(result=is_active))
                    sent = is_active
                await changed.wait()
                changed.clear()
        finally:
            self._streams.discard(changed)

    async def GetMetricSpec(self, request: pb.ScaledObjectRef, context: Any) -> pb.GetMetricSpecResponse:  # noqa: N802
        """Return the one metric, and the slots of one executor as its target."""
        try:
            slots = _slots_per_executor(request)
        except InvalidRequestError as error:
            return await abort(context, error)
        spec = pb.MetricSpec(metricName=METRIC, targetSize=slots, targetSizeFloat=slots)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Any) -> pb.GetMetricsResponse:  # noqa: N802
        """Return the number of slots that are wanted."""
        if request.metricName != METRIC:
            why = f"there is no metric {request.metricName[:100]!r}; {METRIC} is the only one"
            return await abort(context, InvalidRequestError(why))
        wanted = slots_wanted(self._loads.claims())
        value = pb.MetricValue(metricName=METRIC, metricValue=wanted, metricValueFloat=wanted)
        return pb.GetMetricsResponse(metricValues=[value])


def _slots_per_executor(ref: pb.ScaledObjectRef) -> int:
    said = ref.scalerMetadata.get(SLOTS_PER_EXECUTOR, "1")
    if said.isascii() and said.isdecimal() and len(said) <= len(str(_MAX_SLOTS)) and 1 <= int(said) <= _MAX_SLOTS:
        return int(said)
    raise InvalidRequestError(
        f"{SLOTS_PER_EXECUTOR} in the metadata of {ref.namespace[:100]}/{ref.name[:100]} is {said[:100]!r}; give the "
        f"number of slots of one executor, from 1 to {_MAX_SLOTS:,}"
    )


@asynccontextmanager
async def serving_scaler(scheduler: SchedulerApp, settings: SchedulerSettings, listen: str) -> AsyncIterator[int]:
    """Serve KEDA at *listen* inside the block; yield the port.

    `InvalidSettingError` when the address cannot be used, or others reach it and need not show a certificate.
    """
    if settings.scaler_tls_client_ca is not None and settings.tls_cert is None:
        raise InvalidSettingError(
            "scaler_tls_client_ca", str(settings.scaler_tls_client_ca), "it needs --tls-cert and --tls-key"
        )
    access = ServerAccess(settings.scaler_security, listen, "--scaler-listen")
    server = grpc.aio.server(options=SERVER_OPTIONS, interceptors=access.interceptors)
    service = ScalerService(scheduler.heads, scheduler.loads)
    add_ExternalScalerServicer_to_server(service, Border(server, foreign_bytes=SCALER_BYTES))
    port = access.add_port(server, listen)
    await server.start()
    log.info("scaler_ready", address=f"{listen.rpartition(':')[0]}:{port}")
    try:
        yield port
    finally:
        await asyncio.shield(server.stop(None))  # streams to KEDA would use up any grace
