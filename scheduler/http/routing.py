"""What all routes are given."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request

from onager.clock import Clock
from onager.scheduler.app import Replica
from onager.scheduler.http.access import Access, Caller
from onager.scheduler.http.calls import Calls
from onager.scheduler.http.feeds import JobFeeds
from onager.scheduler.http.streams import Streams

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Server:
    """The parts of the HTTP interface of a scheduler."""

    def __init__(
        self,
        replica: Replica,
        access: Access,
        clock: Clock,
        registry: "CollectorRegistry | None" = None,
        refusals: Counter[str] | None = None,
    ) -> None:
        """Serve *replica*, and the metrics of *registry*; count refused callers in *refusals*."""
        self.replica = replica
        self.access = access
        self.clock = clock
        self.registry = registry
        self.refusals = Counter[str]() if refusals is None else refusals
        self.calls = Calls(replica.service)
        self.streams = Streams(replica.stopping)
        self.feeds = JobFeeds(self.calls.source, self.calls.standing)


async def _server(request: Request) -> Server:
    found: Any = request.app.state.server
    assert isinstance(found, Server)
    return found


Here = Annotated[Server, Depends(_server)]


async def _caller(here: Here, request: Request) -> Caller:
    """Return who makes *request*; errors as in `Access.identify`."""
    return here.access.identify(request)


By = Annotated[Caller, Depends(_caller)]
JobId = Annotated[str, Path(description="The job's id.", max_length=256, examples=["job-1"])]
