"""Backups restored into other stores by processes: refused, killed halfway, and with jobs that continue."""

import asyncio
import itertools
import json
import secrets

import pytest

from onager.protocol import onager_pb2 as pb
from onager.state_backend import Keyspace, open_backend
from tests.integration.scheduler.state_commands import busy_cluster, contents, filled, start_onager, state, state_json
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.integration.scheduler.test_process import process, start
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.processes.children import free_port
from tests.support.waiting import HANGS_S, eventually


async def test_a_backup_goes_from_any_store_into_any_other(tmp_path, etcd):
    stores = [
        f"leveldb:{tmp_path / 'one'}",
        etcd.url(f"test-{secrets.token_hex(8)}"),
        f"leveldb:{tmp_path / 'two'}",
    ]
    place = (Keyspace.Places, "exchange")
    async with busy_cluster(tmp_path, stores[0]) as (address, _, _):

        async def is_place_known():
            return "exchange" in (await state("ls", "Places/", "--scheduler", address))[0]

        await eventually(is_place_known)  # the scheduler makes its id beside what else it does
    before = await contents(stores[0])
    for number, (source, target) in enumerate(itertools.pairwise(stores)):
        file = tmp_path / f"{number}.zst"
        await state("backup", file, "--backend", source)
        out, _ = await state("restore", file, "--backend", target)
        assert f"from {source.partition('?')[0]}, revision" in out
        assert "checking the store:" in out
        after = await contents(target)
        ids = {json.loads(each.pop(place))["place_id"] for each in (after, dict(before))}
        assert len(ids) == 1, "a place keeps its id, and loses its generation"
        assert after == {key: value for key, value in before.items() if key != place}
    assert len(before) > 20


async def test_a_store_that_is_not_empty_is_left_alone_unless_it_is_to_be_replaced(tmp_path, make_url):
    source, target = make_url(), make_url()
    await filled(source, [(Keyspace.Sessions, "new", b"{}")])
    await filled(target, [(Keyspace.Sessions, "old", b"{}"), (Keyspace.Results, "old", b"{}")])
    await state("backup", tmp_path / "b.zst", "--backend", source)
    restore = ("restore", tmp_path / "b.zst", "--backend", target)
    _, err = await state(*restore, code=2)
    assert "the store is not empty (Sessions 1, Results 1): give another one, or --replace" in err
    _, err = await state(*restore, "--replace", code=2)
    assert "delete 2 records and restore 1? There is no terminal to ask; use --yes" in err
    assert {key for _, key in await contents(target)} == {"old"}
    restored = await state_json(*restore, "--replace", "--yes")
    assert (restored["records"], restored["errors"]) == ({"Sessions": 1, "Audit": 1}, 0)
    assert {key for _, key in await contents(target)} == {"new"}


async def test_a_damaged_backup_changes_nothing(tmp_path, make_url):
    source, target = make_url(), make_url()
    await filled(source, [(Keyspace.Sessions, f"s{n}", b"{}") for n in range(50)])
    await filled(target, [(Keyspace.Sessions, "old", b"{}")])
    file = tmp_path / "b.zst"
    await state("backup", file, "--backend", source)
    file.write_bytes(file.read_bytes()[:-40])
    _, err = await state("restore", file, "--backend", target, "--replace", "--yes", code=1)
    assert f"onager: backup {file} is damaged, line " in err
    assert "Nothing was restored; use another backup" in err
    assert {key for _, key in await contents(target)} == {"old"}


async def test_a_store_that_a_scheduler_uses_is_not_restored_into(tmp_path, etcd):
    backend = etcd.url(f"test-{secrets.token_hex(8)}")
    async with busy_cluster(tmp_path, backend) as (address, _, _):
        await state("backup", tmp_path / "b.zst", "--scheduler", address)
        _, err = await state("restore", tmp_path / "b.zst", "--backend", backend, "--replace", "--yes", code=2)
        assert "the store is in use by executor e1" in err
        assert "Stop its schedulers, wait until their leases expire" in err
        assert (await state_json("check", "--scheduler", address))["errors"] == 0


async def test_a_scheduler_that_has_no_executors_is_found_as_well(tmp_path, etcd):
    backend = etcd.url(f"test-{secrets.token_hex(8)}")
    async with process(tmp_path, port := free_port(), backend=backend, scheduler_id="alone"):

        async def is_registered():
            return await state_json("ls", "Schedulers", "--backend", backend)

        await eventually(is_registered)
        await state("backup", tmp_path / "b.zst", "--scheduler", f"127.0.0.1:{port}")
        _, err = await state("restore", tmp_path / "b.zst", "--backend", backend, code=2)
        assert "the store is in use by scheduler alone. Stop its schedulers" in err
        _, err = await state("rm", "Schedulers/alone", "--yes", "--backend", backend, code=2)
        assert "Schedulers/alone is in use: scheduler alone is running" in err


async def restored_until_killed(file, target):
    """Return how many records a restore wrote that was killed after its first ones."""
    async with await open_backend(target) as store:
        restoring = await start_onager("state", "restore", file, "--backend", target)

        async def has_some():
            return (await store.scan_keys(Keyspace.Sessions, limit=1)).items

        await eventually(has_some)
        restoring.kill()
        await restoring.communicate()
        return len((await store.scan_keys(Keyspace.Sessions, limit=10_000)).items)


async def test_a_restore_that_was_killed_is_noticed_and_repeated(tmp_path, etcd):
    source = f"leveldb:{tmp_path / 'source'}"
    records = [(Keyspace.Sessions, f"s{n:05d}", b'{"x":"%s"}' % secrets.token_hex(2000).encode()) for n in range(8000)]
    await filled(source, records)
    file = tmp_path / "b.zst"
    await state("backup", file, "--backend", source)

    for _ in range(10):  # on a busy machine it may be done before we get to killing it
        target = etcd.url(f"test-{secrets.token_hex(8)}")
        if 0 < await restored_until_killed(file, target) < len(records):
            break
    else:
        pytest.fail("every restore was done before it was killed")

    refused = await start(tmp_path, 0, backend=target)
    _, err = await asyncio.wait_for(refused.communicate(), HANGS_S)
    assert refused.returncode == 2
    assert f"the restore of {file} into this store was not finished" in err.decode()
    unfinished = await state_json("check", "--backend", target, code=1)
    assert [f["kind"] for f in unfinished["findings"]] == ["unfinished"]

    out, _ = await state("restore", file, "--backend", target)
    assert f"an earlier restore of {file} was not finished: starting again" in out
    assert await contents(target) == {(keyspace, key): value for keyspace, key, value in records}
    async with process(tmp_path, free_port(), backend=target):
        pass


async def test_a_job_goes_on_in_the_store_that_it_was_restored_into(tmp_path, make_url):
    source, target = make_url(), make_url()
    async with busy_cluster(tmp_path, source):
        pass
    await state("backup", tmp_path / "b.zst", "--backend", source)
    await state("restore", tmp_path / "b.zst", "--backend", target)
    port = free_port()
    async with process(tmp_path, port, backend=target):
        client = Client(f"127.0.0.1:{port}")
        async with executor(f"127.0.0.1:{port}", "e2", two_stages("e2")) as e2:
            assert (await client.wait("active")).state == pb.SUCCESSFUL
            assert await client.fetch("active") == RESULT
            assert await client.fetch("ended") == RESULT
            assert {at[1] for at in e2.ran} == {2}, "what was finished is not run again"
        assert (await state_json("check", "--scheduler", f"127.0.0.1:{port}"))["errors"] == 0
        await client.close()
