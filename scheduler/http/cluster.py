"""The routes of executors and schedulers, of the cluster as a whole, and of the audit."""

from collections import Counter
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.progress import why_nobody_works
from onager.scheduler.app import SchedulerApp
from onager.scheduler.http import cursors, encoding, models
from onager.scheduler.http.bodies import read_json
from onager.scheduler.http.problems import RESPONSES
from onager.scheduler.http.routing import By, Here
from onager.state_admin.admin import without_credentials
from onager.version import __version__

router: Final = APIRouter(tags=["cluster"], responses=RESPONSES)

_ALIVE: Final = "alive"
Database = Annotated[str, Path(description="The database.", max_length=1024, examples=["default"])]
Name = Annotated[str, Path(description="Of a table, view or function.", max_length=1024, examples=["sales"])]
_MAX_WARNINGS: Final = 100


@router.get("/executors", response_model=models.Executors)
async def list_executors(here: Here, by: By) -> Response:
    """All executors, those lost lately included."""
    page = cursors.page_of("executors", "executors")
    return encoding.answer(await here.calls.answer(by, "ListExecutors", pb.ListExecutorsRequest(), page))


@router.post(
    "/executors/{executor_id}/drain",
    response_model=models.Drained,
    openapi_extra=models.body(models.DrainExecutor, is_needed=False),
)
async def drain_executor(
    here: Here,
    by: By,
    request: Request,
    executor_id: Annotated[str, Path(description="The executor's id.", max_length=256)],
) -> Response:
    """Have an executor take no more work, finish what it runs, and leave; this cannot be taken back."""
    here.calls.check(by, "DrainExecutor")
    given = models.parsed(models.DrainExecutor, await read_json(request))
    order = pb.DrainExecutorRequest(executor_id=executor_id, reason=given.reason)
    return encoding.answer(encoding.message(await here.calls.call(by, "DrainExecutor", order)))


@router.get("/schedulers", response_model=models.Schedulers)
async def list_schedulers(here: Here, by: By) -> Response:
    """All live schedulers."""
    page = cursors.page_of("schedulers", "schedulers")
    return encoding.answer(await here.calls.answer(by, "ListSchedulers", pb.ListSchedulersRequest(), page))


@router.get("/cluster", response_model=models.Cluster)
async def get_cluster(here: Here, by: By) -> Response:
    """The cluster at a glance: its store, jobs, executors, and what an operator should look at."""
    here.calls.check(by, "ListJobs")
    executors: pb.ListExecutorsResponse = await here.calls.call(by, "ListExecutors", pb.ListExecutorsRequest())
    return encoding.answer(encoding.encoded(_cluster(here.scheduler, list(executors.executors))))


def _cluster(scheduler: SchedulerApp, executors: list[pb.ExecutorInfo]) -> dict[str, object]:
    alive = [executor for executor in executors if executor.state == _ALIVE]
    return {
        "version": __version__,
        "store": without_credentials(scheduler.settings.backend),
        "exchange_dir": scheduler.settings.exchange_dir,
        "jobs": scheduler.heads.counts(),
        "executors": dict(sorted(Counter(executor.state for executor in executors).items())),
        "slots": sum(executor.slots for executor in alive),
        "running": sum(executor.running for executor in alive),
        "schedulers": len(scheduler.schedulers.infos()),
        "warnings": _warnings(scheduler, executors),
    }


def _warnings(scheduler: SchedulerApp, executors: list[pb.ExecutorInfo]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    if not any(executor.state == _ALIVE for executor in executors):
        found.append({"kind": "no_executors", "target": "", "message": why_nobody_works(executors)})
    for executor in executors:
        state = "no_place" if executor.state == _ALIVE and executor.reason else executor.state  # it lacks the warehouse
        if state in ("quarantined", "no_space", "no_place", "lost"):
            found.append({"kind": f"executor_{state}", "target": executor.executor_id, "message": executor.reason})
    found += [
        {"kind": "job_damaged", "target": job_id, "message": "its head cannot be read: run onager state check"}
        for job_id, _ in scheduler.heads.damaged
    ]
    return found[:_MAX_WARNINGS]


@router.get("/catalog", response_model=models.Catalog)
async def list_databases(here: Here, by: By, query: Annotated[models.CatalogQuery, Query()]) -> Response:
    """The databases of the catalog."""
    return await _catalog(here, by, pb.GetCatalogRequest(), query)


@router.get("/catalog/{database}", response_model=models.Catalog)
async def list_database(
    here: Here, by: By, query: Annotated[models.CatalogQuery, Query()], database: Database
) -> Response:
    """The tables, views and functions of a database."""
    return await _catalog(here, by, pb.GetCatalogRequest(database=database), query)


@router.get("/catalog/{database}/{name}", response_model=models.CatalogEntry)
async def get_catalog_entry(here: Here, by: By, database: Database, name: Name) -> Response:
    """A table, view or function; `json` is what the store has of it."""
    request = pb.GetCatalogRequest(database=database, name=name)

    def entry(answer: pb.GetCatalogResponse) -> bytes:
        return encoding.message(answer.entries[0])

    return encoding.answer(await here.calls.answer(by, "GetCatalog", request, entry))


@router.get("/catalog/{database}/{name}/partitions", response_model=models.CatalogPartitions)
async def list_partitions(
    here: Here, by: By, query: Annotated[models.CatalogQuery, Query()], database: Database, name: Name
) -> Response:
    """The partitions of a table."""
    request = pb.GetCatalogRequest(database=database, name=name, partitions=True)
    return await _catalog(here, by, request, query)


async def _catalog(here: Here, by: By, request: pb.GetCatalogRequest, query: models.CatalogQuery) -> Response:
    listing = f"catalog/{request.database}/{request.name}"
    request.limit, request.cursor = query.limit, cursors.read(listing, query.cursor)
    page = cursors.page_of(listing, "partitions" if request.partitions else "entries")
    return encoding.answer(await here.calls.answer(by, "GetCatalog", request, page, form="page"))


@router.get("/audit", response_model=models.Audit)
async def list_audit(here: Here, by: By, query: Annotated[models.AuditQuery, Query()]) -> Response:
    """Who changed what, other than by submitting jobs, oldest first."""
    request = pb.ListAuditRequest(**query.model_dump(exclude={"cursor"}), cursor=cursors.read("audit", query.cursor))
    return encoding.answer(await here.calls.answer(by, "ListAudit", request, cursors.page_of("audit", "entries")))
