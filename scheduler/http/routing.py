"""What all routes are given."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request

from onager.clock import Clock
from onager.scheduler.app import SchedulerApp
from onager.scheduler.http.access import Access, Caller
from onager.scheduler.http.calls import Calls
from onager.scheduler.http.feeds import JobFeeds
from onager.scheduler.http.streams import Streams

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(eq=False, repr=False)
class Server:
    """The parts of the HTTP interface of a scheduler."""

    scheduler: SchedulerApp
    access: Access
    clock: Clock
    registry: "CollectorRegistry | None"
    """The metrics that are served."""
    refusals: Counter[str]
    """Counts refused callers."""

    def __post_init__(self) -> None:
        self.calls = Calls(self.scheduler.service)
        self.streams = Streams(self.scheduler.stopping)
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
