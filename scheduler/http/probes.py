"""What load balancers and Prometheus ask."""

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from onager.errors import NotFoundError
from onager.scheduler.http import encoding, models
from onager.scheduler.http.problems import RESPONSES
from onager.scheduler.http.routing import By, Here

router: Final = APIRouter(tags=["probes"], responses=RESPONSES)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=models.Ready, responses={503: {"model": models.Ready}})
async def is_ready(here: Here) -> Response:
    """Whether this scheduler serves; anybody may ask. 503 while it stops."""
    is_stopping = here.scheduler.stopping.is_set()
    answer = {"is_ready": not is_stopping, "scheduler_id": here.scheduler.settings.scheduler_id}
    return encoding.answer(encoding.encoded(answer), status=503 if is_stopping else 200)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(here: Here, by: By) -> Response:
    """The metrics of this scheduler, for Prometheus."""
    here.calls.check(by, "ListSchedulers")
    if here.registry is None:
        raise NotFoundError("this scheduler keeps no metrics")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    content = await asyncio.to_thread(generate_latest, here.registry)
    return Response(content, 200, {"cache-control": "no-store", "content-type": CONTENT_TYPE_LATEST})
