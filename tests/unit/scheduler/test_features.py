"""In a rolling upgrade a scheduler uses the features that all others and all executors have registered."""

import pytest

from onager import features
from onager.errors import FeatureMissingError
from onager.features import check_features
from onager.scheduler.cluster.live_schedulers import LiveSchedulers
from onager.scheduler.cluster.precedence import Precedence
from onager.scheduler.executors.manager import ExecutorManager
from onager.state_backend import Keyspace
from tests.unit.scheduler.executor_managers import request


@pytest.fixture(autouse=True)
def newer(monkeypatch):
    monkeypatch.setattr(features, "FEATURES", frozenset({"first", "second"}))
    monkeypatch.setattr("onager.scheduler.cluster.live_schedulers.FEATURES", features.FEATURES)


@pytest.fixture
def schedulers(backend, clock):
    return LiveSchedulers(backend, clock, scheduler_id="this", address="h:1", lease_ttl_s=5)


async def test_a_feature_waits_for_the_last_scheduler_that_lacks_it(backend, schedulers):
    assert schedulers.record.features == ("first", "second")
    assert schedulers.features == {"first", "second"}
    for name, has in (("newer", ("first", "second", "third")), ("older", ("second",))):
        other = schedulers.record.model_copy(update={"scheduler_id": name, "features": has})
        await backend.put(Keyspace.Schedulers, name, other.encoded())
    await schedulers.refresh()
    assert schedulers.features == {"second"}
    await backend.delete(Keyspace.Schedulers, "older")
    await schedulers.refresh()
    assert schedulers.features == {"first", "second"}


async def test_a_feature_waits_for_the_last_executor_that_lacks_it(backend, clock, schedulers):
    manager = ExecutorManager(
        backend,
        clock,
        lease_ttl_s=10,
        connection_grace_s=1,
        lost_retention_s=60,
        precedence=Precedence(schedulers),
        machine="m",
    )
    assert manager.features == {"first", "second"}
    await manager.register(request("newer", features=["first", "second", "third"]))
    assert manager.features == {"first", "second"}
    older = await manager.register(request("older", features=["second"]))
    assert manager.features == {"second"}
    await manager.drain(older)
    assert manager.features == {"first", "second"}, "it gets no more tasks"


def test_what_needs_a_feature_that_is_missing_is_refused_by_name():
    check_features(["first"], "a report")
    with pytest.raises(FeatureMissingError, match=r"a report needs third, zeroth, which Onager .* lacks: use a newer"):
        check_features(["zeroth", "first", "third"], "a report")
