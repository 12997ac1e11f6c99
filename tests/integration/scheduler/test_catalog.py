"""The catalog over real gRPC: what planners read while others write, what jobs change, what people see."""

import asyncio
import json

import grpc
import pytest

from onager.catalog_records import parsed_page_key, read_page
from onager.cli import catalog as cli
from onager.client import catalog as client_catalog
from onager.clock import SystemClock
from onager.errors import InvalidRequestError, NotFoundError
from onager.protocol import onager_pb2 as pb
from onager.protocol.status import from_rpc_error
from onager.state_backend import Keyspace, Put
from onager.state_backend.memory import MemoryBackend, MemoryStore
from tests.integration.scheduler.conftest import serving
from tests.integration.scheduler.test_jobs import planned
from tests.support.catalogs import (
    T_ID,
    database,
    make,
    message,
    partitions,
    partitions_of,
    plain,
    put,
    record_of,
    table,
    view,
)
from tests.support.fakes.scripted_executor import (
    Client,
    ScriptedExecutor,
    arrow_stream,
    executor,
    plan_outcome,
    success,
)
from tests.support.http import http_scheduler
from tests.support.waiting import eventually

TABLE = "tables/default/t"


def changing(catalogs, *, is_ddl=True):
    """Return what an executor does whose plans change the catalog by what the job's text names."""

    def run(task_set, task):
        if task_set.work != pb.PLAN:
            return success(task_set, task, "e1", inline=arrow_stream([1]))
        outcome = plan_outcome([(0 if is_ddl else 1, 1, "result")])
        catalog = catalogs(task.task_attempt)
        if catalog is not None:
            outcome.catalog.CopyFrom(catalog)
        return planned(task_set, task, outcome)

    return run


@pytest.fixture
def backend(scheduler):
    return scheduler.app._backend


@pytest.fixture
async def reader(scheduler):
    """Return an executor that only reads: nothing renews its lease."""
    found = ScriptedExecutor(scheduler.address, "reader", lambda *_: None)
    yield found
    await found.close()


async def read(reader, **fields):
    await reader.register()
    return await ask(reader, **fields)


async def ask(reader, **fields):
    request = pb.ReadCatalogRequest(executor_id=reader.executor_id, incarnation=reader.incarnation, **fields)
    try:
        return await reader.stub.ReadCatalog(request)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, "the scheduler") from error


# ---------------------------------------------------------------- what planners read


async def test_keys_and_prefixes_are_read_as_they_are_stored(backend, reader):
    at = await make(backend, put("databases/a", database()), put(TABLE, table()), put("tables/a/v", view("b" * 16)))
    answer = await read(reader, keys=[TABLE, "tables/a/none"], prefixes=["tables/a/", "functions/a/"])
    assert [(record.key, record.revision) for record in answer.records] == [
        (TABLE, at),
        ("tables/a/none", 0),
        ("tables/a/v", at),
    ]
    assert json.loads(answer.records[0].value) == table()
    assert answer.revision >= at
    assert not answer.truncated
    answer = await read(reader, keys=[TABLE], prefixes=["databases/"], keys_only=True)
    assert [(record.key, record.value, record.revision) for record in answer.records] == [
        (TABLE, b"", at),
        ("databases/a", b"", at),
    ]


async def test_a_long_prefix_is_read_in_portions(backend, reader):
    names = [f"tables/default/t{n:04d}" for n in range(2_300)]
    value = json.dumps(table()).encode()
    await backend.put_all([Put(Keyspace.Catalog, name, value) for name in names])
    found, after = [], ""
    for expected in (True, True, False):
        answer = await read(reader, prefixes=["tables/default/"], start_after=after)
        assert answer.truncated is expected
        found += [record.key for record in answer.records]
        after = found[-1]
    assert found == names


async def test_what_does_not_fit_one_answer_is_left_out_and_reported(backend, reader):
    large = json.dumps(table(comment="x" * 240_000)).encode()
    for n in range(140):
        await backend.put(Keyspace.Catalog, f"tables/default/t{n:03d}", large)
    answer = await read(reader, prefixes=["tables/default/"])
    assert answer.truncated
    assert 100 < len(answer.records) < 140
    rest = await read(reader, prefixes=["tables/default/"], start_after=answer.records[-1].key)
    assert len(answer.records) + len(rest.records) == 140
    assert not rest.truncated


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"keys": [f"k{n}" for n in range(60)], "prefixes": ["tables/"] * 41}, "101 keys and prefixes"),
        ({"keys": ["k"] * 101}, "more than the limit of 100"),
        ({"keys": ["k"], "start_after": "k"}, "exactly one prefix"),
        ({"prefixes": ["a/", "b/"], "start_after": "a"}, "exactly one prefix"),
        ({"prefixes": ["tables"]}, "must be empty or end with"),
        ({"keys": [""]}, "a key must not be empty"),
        ({"keys": ["k" * 5_000]}, "more than the limit of 4,096"),
    ],
)
async def test_a_read_that_cannot_be_answered_is_refused(reader, fields, why):
    with pytest.raises(InvalidRequestError, match=why):
        await read(reader, **fields)


async def test_all_of_one_read_is_of_one_revision_while_others_write(backend, reader):
    """Two records that are always written together are always read together, by key and by prefix."""
    await make(backend, put("tables/a/t", table()), put("tables/b/t", table("b" * 16)))
    is_over = False

    async def write():
        n = 0
        while not is_over:
            n += 1
            value = json.dumps(table(comment=n)).encode()
            await backend.put_txn([Put(Keyspace.Catalog, f"tables/{name}/t", value) for name in "ab"])

    async def look():
        nonlocal is_over
        seen = set()
        for _ in range(150):
            answer = await read(reader, keys=["tables/a/t"], prefixes=["tables/b/"])
            one, two = answer.records
            assert one.revision == two.revision <= answer.revision
            seen.add(one.revision)
        is_over = True
        assert len(seen) > 10

    await asyncio.gather(write(), look())


async def test_an_executor_that_is_not_known_reads_nothing(scheduler):
    stranger = ScriptedExecutor(scheduler.address, "stranger", lambda *_: None)
    with pytest.raises(Exception, match="is not registered in this incarnation"):
        await ask(stranger, keys=[TABLE])
    await stranger.close()


# ---------------------------------------------------------------- what jobs change


async def test_a_job_that_only_changes_the_catalog(backend, scheduler, client):
    catalogs = changing(lambda _: message(put(TABLE, table()), partitions({"k=1": {"n": 1}})))
    async with executor(scheduler.address, "e1", catalogs):
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
    assert await partitions_of(backend) == {"k=1": {"n": 1}}


async def test_a_job_that_is_planned_on_what_another_has_changed_is_planned_anew(backend, scheduler, client):
    first = await make(backend, put(TABLE, table(comment="first")))
    second = await make(backend, put(TABLE, table(comment="second"), first))
    seen = [first, second]
    catalogs = changing(lambda attempt: message(put(TABLE, table(comment="mine"), seen[min(attempt, 1)])))
    async with executor(scheduler.address, "e1", catalogs) as scripted:
        await client.submit("job-1")
        assert (await client.wait("job-1")).state == pb.SUCCESSFUL
        assert [attempt for *_, attempt in scripted.ran] == [0, 1]
    assert (await record_of(backend, TABLE))["spark"]["comment"] == "mine"


async def test_a_query_whose_table_was_dropped_meanwhile_fails_and_names_it(store, tmp_path):
    run = changing(lambda _: message(partitions({"k=1": {}})), is_ddl=False)

    def stuck(task_set, task):
        return run(task_set, task) if task_set.work == pb.PLAN else None

    async with serving(store, tmp_path, executor_lease_ttl_ms=600_000) as scheduler:
        client, backend = Client(scheduler.address), scheduler.app._backend
        at = await make(backend, put(TABLE, table()))
        async with executor(scheduler.address, "e1", stuck) as scripted:
            await client.submit("job-1")
            await eventually(lambda: any(task.stage_id == 1 for task in scripted.held.values()))
            await make(backend, put(TABLE, None, at, removes=(T_ID,)))
            await scripted.finish(list(scripted.held.values()), run)
            progress = await client.wait("job-1")
        assert progress.state == pb.FAILED
        assert progress.failure.kind == "user_error"
        assert progress.failure.message == (
            "table default.t was changed by another job while this one ran (it was removed): submit it again"
        )
        assert await record_of(backend, TABLE) is None
        await client.close()


@pytest.mark.parametrize(
    ("catalog", "kind", "why"),
    [
        (message(put("pages/x/y", table())), "internal_error", "no record of the catalog"),
        (message(put("../JobHeads/x", table())), "internal_error", "no record of the catalog"),
        (message(put("tables/default/a b", table())), "internal_error", "no record of the catalog"),
        (message(pb.CatalogPut(key=TABLE, value=b"\xff no json")), "internal_error", "in a form that cannot be kept"),
        (message(pb.CatalogPut(key=TABLE, value=b"x" * 2_000_000)), "internal_error", "is refused"),
        (message(*(put(f"tables/default/t{n}", table()) for n in range(10_000))), "user_error", "10,000 records"),
        (message(*(put("tables/default/t", None) for _ in range(30_000))), "internal_error", "is refused"),
    ],
)
async def test_bad_changes_of_an_executor_are_refused_and_nothing_is_lost(tmp_path, catalog, kind, why):
    async with serving(f"leveldb:{tmp_path / 'state'}", tmp_path, retry_pauses_s=(0.01,)) as scheduler:
        client = Client(scheduler.address)
        backend = scheduler.app._backend
        await make(backend, put(TABLE, table()))
        async with executor(scheduler.address, "e1", changing(lambda _: catalog)):
            await client.submit("job-1")
            progress = await client.wait("job-1")
        assert progress.state == pb.FAILED
        assert progress.failure.kind == kind
        assert why in progress.failure.message
        assert await record_of(backend, TABLE) == table()
        async with executor(scheduler.address, "e1", changing(lambda _: message(partitions({"k=1": {}})))):
            await client.submit("job-2")
            assert (await client.wait("job-2")).state == pb.SUCCESSFUL
        assert await partitions_of(backend) == {"k=1": {}}
        await client.close()


# ---------------------------------------------------------------- what people see


@pytest.fixture
async def filled(backend):
    secret = {"storage": {"location": "file:/u", "properties": {"password": "hunter2", "header": "true"}}}
    function = {"kind": "function", "version": 1, "spark": {"className": "a.B"}}
    await make(
        backend,
        put("databases/a", database()),
        put("tables/a/t", table(), 0),
        put("tables/a/v", view("b" * 16)),
        put("functions/a/f", function),
        put("tables/default/u", table("c" * 16, **secret)),
        put("tables/default/a%2Fb", table("d" * 16)),
    )
    await make(
        backend, partitions({f"k={n}": {"storage": {"location": f"file:/x/{n}"}} for n in range(5)}, key="tables/a/t")
    )


async def look(client, **fields):
    try:
        return await client.stub.GetCatalog(pb.GetCatalogRequest(**fields))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, "the scheduler") from error


@pytest.mark.usefixtures("filled")
async def test_people_see_databases_what_is_in_them_and_partitions_in_pages(client):
    assert [entry.database for entry in (await look(client)).entries] == ["default", "a"]
    found, cursor = [], ""
    for _ in range(3):
        answer = await look(client, database="a", limit=1, cursor=cursor)
        found += [(entry.kind, entry.name) for entry in answer.entries]
        cursor = answer.next
    assert found == [("table", "t"), ("view", "v"), ("function", "f")]
    assert cursor == ""
    assert [entry.name for entry in (await look(client, database="DEFAULT")).entries] == ["a/b", "u"]
    answer = await look(client, database="A", name="T", partitions=True, limit=3)
    assert [partition.path for partition in answer.partitions] == ["k=0", "k=1", "k=2"]
    answer = await look(client, database="a", name="t", partitions=True, cursor=answer.next)
    assert [partition.path for partition in answer.partitions] == ["k=3", "k=4"]
    assert answer.next == ""


@pytest.mark.usefixtures("filled")
async def test_secrets_of_tables_are_not_shown(client):
    (entry,) = (await look(client, database="default", name="u")).entries
    assert "hunter2" not in entry.json
    assert json.loads(entry.json)["spark"]["storage"]["properties"]["header"] == "true"


@pytest.mark.usefixtures("filled")
async def test_what_does_not_exist_is_reported_by_name(client):
    with pytest.raises(NotFoundError, match="no database nothing"):
        await look(client, database="nothing")
    with pytest.raises(NotFoundError, match=r"no table, view or function a\.nothing"):
        await look(client, database="a", name="nothing")


@pytest.mark.usefixtures("filled")
async def test_the_commands_print_it(scheduler, capsys):
    def run():
        cli.ls(scheduler.address, "", "table")
        cli.ls(scheduler.address, "a", "json")
        cli.ls(scheduler.address, "a.t", "table")
        cli.show(scheduler.address, "default.`a/b`", has_partitions=False, is_json=False)
        cli.show(scheduler.address, "a.t", has_partitions=True, is_json=True)

    await asyncio.to_thread(run)
    out = capsys.readouterr().out
    assert "k=3        file:/x/3" in out
    assert "table default.a/b\ntableType: MANAGED" in out
    assert '"k=4"' in out


@pytest.mark.parametrize(
    ("text", "name"),
    [("a", ("a", "")), ("a.b", ("a", "b")), ("`a.b`.c", ("a.b", "c")), ("a.`b``c`", ("a", "b`c"))],
)
def test_names_are_written_as_in_sql(text, name):
    assert client_catalog.parsed_name(text) == name
    with pytest.raises(InvalidRequestError, match="no name in the catalog"):
        client_catalog.parsed_name(f"{text}.x.y")


async def test_the_same_over_http(tmp_path):
    async with http_scheduler(MemoryBackend(MemoryStore(SystemClock())), tmp_path) as served:
        await make(served.app._backend, put(TABLE, table()), partitions({"k=1": {}, "k=2": {}}))
        assert [each["database"] for each in (await served.get("/catalog"))["items"]] == ["default"]
        assert [each["name"] for each in (await served.get("/catalog/default"))["items"]] == ["t"]
        assert json.loads((await served.get("/catalog/default/t"))["json"])["id"] == T_ID
        page = await served.get("/catalog/default/t/partitions", limit=1)
        assert [each["path"] for each in page["items"]] == ["k=1"]
        page = await served.get("/catalog/default/t/partitions", cursor=page["next"])
        assert [each["path"] for each in page["items"]] == ["k=2"]
        assert page["next"] is None
        assert (await served.http.get("/api/v1/catalog/nothing")).status_code == 404


async def test_pages_are_what_planners_are_given(backend, reader):
    await make(backend, put(TABLE, table()), partitions({"k=1": {"n": 1}, "k=2": {}}))
    await make(backend, partitions({"k=2": None}))
    (record,) = (await read(reader, keys=[TABLE])).records
    pages = [f"pages/{T_ID}/{page}" for page in json.loads(record.value)["pages"]]
    found = (await read(reader, keys=pages)).records
    assert [plain(read_page(parsed_page_key(each.key)[1], each.value, each.key)) for each in found] == [
        {"k=1": {"n": 1}, "k=2": {}},
        {"k=2": None},
    ]
