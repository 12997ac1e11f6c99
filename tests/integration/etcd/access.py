"""Opening an etcd, and the errors when it refuses."""

import pytest

from onager.errors import StateBackendError
from onager.state_backend import Keyspace, open_backend

QUICK = "timeout=1s&compact_history=off"
"""Parameters for URLs that will not work."""
PATIENT = "timeout=10s&compact_history=off"
"""Parameters for URLs that work, however busy the machine is."""


async def works(url: str) -> None:
    """Write, read and watch by *url*."""
    async with await open_backend(url) as backend, backend.watch(Keyspace.Sessions, "s/") as events:
        revision = await backend.put(Keyspace.Sessions, "s/1", b"value")
        found = await backend.get(Keyspace.Sessions, "s/1")
        assert found is not None
        assert (found.value, found.mod_revision) == (b"value", revision)
        assert (await anext(events)).mod_revision == revision


async def refused(url: str, kind: type[StateBackendError]) -> str:
    """Return what is said when *url* is opened."""
    with pytest.raises(StateBackendError) as caught:
        await open_backend(url)
    assert type(caught.value) is kind, caught.value
    return str(caught.value)
