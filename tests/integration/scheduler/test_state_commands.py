"""`onager state …` as a process, through a scheduler and straight on the store, on every kind of store."""

import asyncio
import contextlib
import getpass
import json
import os
import secrets
import signal
import socket

import pytest

from onager.protocol import onager_pb2 as pb
from onager.state_admin.backing_up import LEASE_BOUND
from onager.state_admin.backup_file import BackupReader
from onager.state_backend import Keyspace, open_backend
from tests.integration.scheduler.state_commands import busy_cluster, filled, onager, start_onager, state, state_json
from tests.integration.scheduler.test_jobs import RESULT, two_stages
from tests.integration.scheduler.test_process import process, start
from tests.support.etcd import EtcdCluster
from tests.support.fakes.scripted_executor import Client, executor
from tests.support.processes.children import free_port
from tests.support.waiting import HANGS_S

# ---------------------------------------------------------------- through a scheduler


@pytest.mark.parametrize("kind", ["memory", "leveldb", "etcd"])
async def test_a_store_with_running_jobs_is_looked_after_through_its_scheduler(tmp_path, request, kind):
    backend = {
        "memory": lambda: "memory:",
        "leveldb": lambda: f"leveldb:{tmp_path / 'state'}",
        "etcd": lambda: request.getfixturevalue("etcd").url(f"test-{secrets.token_hex(8)}"),
    }[kind]()
    async with busy_cluster(tmp_path, backend) as (address, client, _):
        through = ("--scheduler", address)
        checked = await state_json("check", *through)
        assert (checked["findings"], checked["errors"], checked["records"]["ActiveJobs"]) == ([], 0, 1)
        assert "all is well" in (await state("check", *through))[0]

        for passing in ("Locks", "Audit"):  # stored and removed meanwhile
            checked["records"].pop(passing, None)
        keys = [entry["key"] for entry in await state_json("ls", *through)]
        keys = [key for key in keys if not key.startswith(("Locks/", "Audit/"))]
        assert {key.partition("/")[0] for key in keys} == {*checked["records"]}
        assert len(keys) == sum(checked["records"].values())
        for key in keys:
            assert "unreadable" not in (await client.stub.GetState(pb.GetStateRequest(key=key))).json, key
        head = next(key for key in keys if key == "JobHeads/active")
        assert (await state_json("get", head, *through))["value"]["state"] == "running"

        out, _ = await state("backup", tmp_path / "b.zst", *through)
        with BackupReader(tmp_path / "b.zst") as reader:
            found = reader.check()
        assert found.source == backend.partition("?")[0]
        counts = {k: n for k, n in checked["records"].items() if k not in LEASE_BOUND}
        assert found.counts.pop("Audit") >= 1, "the record of this backup"
        assert found.counts == counts
        assert out.splitlines()[0] == (
            f"{found.records} records as of revision {found.revision} are in {tmp_path / 'b.zst'}"
        )


async def test_a_store_is_sound_at_every_moment(scheduler, client):
    jobs = [f"job-{n}" for n in range(3)]
    checks = 0
    async with executor(scheduler.address, "e1", two_stages(width=120), slots=8):
        for job_id in jobs:
            await client.submit(job_id)
        ended = asyncio.gather(*(client.wait(job_id) for job_id in jobs))
        while not ended.done() or checks < 3:
            findings = [f async for part in client.stub.CheckState(pb.CheckStateRequest()) for f in part.findings]
            assert [str(finding) for finding in findings if finding.severity == "error"] == []
            checks += 1
        assert {progress.state for progress in await ended} == {pb.SUCCESSFUL}


async def test_removing_asks_and_minds_running_jobs(tmp_path, url):
    async with busy_cluster(tmp_path, url) as (address, client, go_on):
        through = ("--scheduler", address)
        out, err = await state("rm", "JobLog/active/", *through, code=2)
        assert out.splitlines()[0].startswith("to remove: ")
        assert "danger: job active is active, and without it what it did since its last snapshot" in out
        assert "onager: JobLog/active/ is in use: " in err
        assert "Use --force" in err
        await state("rm", "JobLog/active/", "--yes", *through, code=2)

        out, err = await state("rm", "Results/ended/", *through, code=2)
        assert out.splitlines()[0] == "to remove: 3 records"
        assert err == "onager: remove 3 records? There is no terminal to ask; use --yes\n"
        assert (await state_json("rm", "Results/ended/", "--dry-run", *through))["removed"] is False
        out, _ = await state("rm", "Results/ended/", "--yes", *through)
        assert out.splitlines()[-1] == "removed 3 records"
        missing = await state_json("check", *through, code=1)
        assert {f["kind"] for f in missing["findings"]} == {"missing"}
        assert missing["errors"] == 3
        out, _ = await state("check", *through, code=1)
        assert out.splitlines()[-1].endswith("3 errors, 0 warnings")

        # The job that runs was left whole.
        await go_on()
        assert (await client.wait("active")).state == pb.SUCCESSFUL
        assert await client.fetch("active") == RESULT


async def test_a_damaged_job_is_removed_as_the_manual_says(tmp_path, url):
    async with busy_cluster(tmp_path, url):
        pass
    async with await open_backend(url) as store:
        await store.put(Keyspace.JobLog, "active/00000000/000000000002", b'{"schema_version":"11.0","batch_')
    async with process(tmp_path, port := free_port(), backend=url):
        through = ("--scheduler", f"127.0.0.1:{port}")
        damaged = await state_json("check", *through, code=1)
        kinds = {(f["kind"], f["key"]) for f in damaged["findings"] if f["severity"] == "error"}
        assert kinds == {("undecodable", "JobLog/active/00000000/000000000002"), ("marked", "JobHeads/active")}
        await state("backup", tmp_path / "before.zst", *through)
        for path in ("ActiveJobs/active", "JobHeads/active", "GraphChunks/active/", "JobLog/active/"):
            await state("rm", path, "--force", "--yes", *through)
        mended = await state_json("check", *through)
        assert {f["kind"] for f in mended["findings"]} <= {"orphan", "missing"}, "warnings: what is left is collected"
        client = Client(f"127.0.0.1:{port}")
        async with executor(f"127.0.0.1:{port}", "e2", two_stages("e2")):
            assert not (await client.submit("active")).existed, "the id is free again"
            assert (await client.wait("active")).state == pb.SUCCESSFUL
        await client.close()


async def test_a_reader_of_etcd_looks_and_backs_up_and_changes_nothing(tmp_path):
    with EtcdCluster(1) as etcd:
        for role, rights in (("onager", "readwrite"), ("reader", "read")):
            etcd.etcdctl("role", "add", role)
            etcd.etcdctl("role", "grant-permission", role, "--prefix=true", rights, "/onager/")
            etcd.etcdctl("user", "add", f"{role}:pw")
            etcd.etcdctl("user", "grant-role", role, role)
        etcd.enable_auth("root's")
        as_writer, as_reader = (f"etcd://{user}@{etcd.endpoints[0]}/onager" for user in ("onager", "reader"))
        password = {"ONAGER_ETCD_PASSWORD": "pw"}
        await filled_as(as_writer, tmp_path, password)

        _, err = await onager("state", "check", "--backend", as_reader, **password)
        assert err == "", "it does not even try to compact"
        await onager("state", "backup", tmp_path / "b.zst", "--backend", as_reader, **password)
        _, err = await onager("state", "rm", "Sessions/s", "--yes", "--backend", as_reader, code=2, **password)
        assert "does not let user reader do that" in err
        out, _ = await onager("state", "ls", "--backend", as_writer, **password)
        assert "Sessions/s" in out
        _, err = await onager("state", "ls", "--backend", as_reader, code=2, ONAGER_ETCD_PASSWORD="wrong")
        assert "does not accept user reader with this password" in err


async def filled_as(url, tmp_path, password):
    """Put one record as a user, by a restore."""
    source = f"leveldb:{tmp_path / 'source'}"
    await filled(source, [(Keyspace.Sessions, "s", b"{}")])
    await state("backup", tmp_path / "source.zst", "--backend", source)
    await onager("state", "restore", tmp_path / "source.zst", "--backend", url, **password)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ls", "Moons"), "onager: 'Moons' is not a keyspace; use one of Executors, Heartbeats, "),
        (("get", "JobHeads/nothing"), "onager: JobHeads/nothing is not in the store; onager state ls JobHeads lists"),
        (("get", "JobHeads"), "onager: 'JobHeads' does not name a record: give Keyspace/key"),
        (("rm", "JobHeads"), "onager: 'JobHeads' names a whole keyspace: say JobHeads/ to remove everything in it"),
        (("rm", "JobHeads/x", "--yes"), "onager: there is nothing to remove: JobHeads/x is not in the store"),
        (("watch", "Moons/"), "onager: 'Moons' is not a keyspace"),
        (("backup", "/nowhere/b.zst"), "onager: the backup cannot be written to /nowhere/b.zst: No such file"),
        (("ls", "-o", "xml"), "onager: -o 'xml': expected one of table, json"),
    ],
)
async def test_bad_input(scheduler, arguments, message):
    _, err = await state(*arguments, "--scheduler", scheduler.address, code=2)
    assert message in err


async def test_no_scheduler_answers():
    _, err = await state("check", "--scheduler", f"127.0.0.1:{free_port()}", code=3)
    assert "no scheduler answers" in err


# ---------------------------------------------------------------- watching


@contextlib.asynccontextmanager
async def watching(*arguments):
    """Run `onager state watch -o json`, and yield it once it watches."""
    started = await start_onager("state", "watch", *arguments, "-o", "json")
    try:
        line = (await asyncio.wait_for(started.stderr.readline(), HANGS_S)).decode()
        assert line.startswith("watching from revision "), line + (await started.stderr.read()).decode()
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def changes_until(watch, is_last):
    changes = []
    async with asyncio.timeout(HANGS_S):
        while not changes or not is_last(changes[-1]):
            line = await watch.stdout.readline()
            assert line, (await watch.stderr.read()).decode()
            changes.append(json.loads(line))
    return changes


def puts(changes, key):
    return [change["value"]["state"] for change in changes if change["key"] == key and change["kind"] == "put"]


async def test_a_job_is_watched_from_submission_to_its_end(scheduler, client):
    async with watching("--scheduler", scheduler.address) as watch, executor(scheduler.address, "e1", two_stages()):
        await client.submit("job-1")

        def ended(change):
            return change["key"] == "JobHeads/job-1" and change["value"]["state"] == "successful"

        changes = await changes_until(watch, ended)
        states = puts(changes, "JobHeads/job-1")
        assert (states[0], states[-1]) == ("queued", "successful")
        of_log = [change["mod_revision"] for change in changes if change["key"].startswith("JobLog/job-1/")]
        assert len(of_log) > 1
        assert of_log == sorted(of_log)
        watch.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(watch.wait(), HANGS_S) == 0
        assert (await watch.stderr.read()) == b""


async def test_a_watch_goes_on_over_a_restart_of_the_scheduler_and_misses_nothing(tmp_path, etcd):
    backend = etcd.url(f"test-{secrets.token_hex(8)}")
    port = free_port()
    client = Client(f"127.0.0.1:{port}")
    first = await start(tmp_path, port, backend=backend)
    try:
        await client.submit("job-0")
        async with watching("JobHeads", "--scheduler", f"127.0.0.1:{port}") as watch:
            await client.submit("job-1")
            assert [c["key"] for c in await changes_until(watch, lambda _: True)] == ["JobHeads/job-1"]
            first.kill()
            await first.communicate()
            # Nobody tells the watch of these: it has to ask for them.
            async with await open_backend(backend) as store:
                head = (await store.get(Keyspace.JobHeads, "job-1")).value
                for n in (2, 3, 4):
                    await store.put(Keyspace.JobHeads, f"job-{n}", head.replace(b"job-1", b"job-%d" % n))
            async with process(tmp_path, port, backend=backend):
                await client.submit("job-5")
                changes = await changes_until(watch, lambda change: change["key"] == "JobHeads/job-5")
                kinds = [(c["kind"], c["key"]) for c in changes if c["key"] != "JobHeads/job-1"]
                assert [t for t in kinds if t[1] in {f"JobHeads/job-{n}" for n in (2, 3, 4)}][:3] == [
                    ("put", f"JobHeads/job-{n}") for n in (2, 3, 4)
                ]
                assert len({(c["key"], c["mod_revision"]) for c in changes}) == len(changes), "each is reported once"
    finally:
        if first.returncode is None:
            first.kill()
            await first.communicate()
        await client.close()


async def test_a_watch_says_what_it_lost_with_a_restart_on_leveldb(tmp_path):
    port = free_port()
    client = Client(f"127.0.0.1:{port}")
    async with process(tmp_path, port) as first, watching("JobHeads", "--scheduler", f"127.0.0.1:{port}") as watch:
        await client.submit("job-1")
        await changes_until(watch, lambda change: change["key"] == "JobHeads/job-1")
        first.kill()
        await first.wait()
        async with process(tmp_path, port):
            # A reopened store has no history of events: the watch cannot know what it missed, only the current records.
            await client.submit("job-2")
            changes = await changes_until(watch, lambda change: change["key"] == "JobHeads/job-2")
            kinds = [(change["kind"], change["key"]) for change in changes]
            assert kinds[:2] == [("lost", "JobHeads/"), ("listed", "JobHeads/job-1")]
    await client.close()


# ---------------------------------------------------------------- straight on the store


async def test_everything_works_without_a_scheduler(tmp_path, url):
    async with busy_cluster(tmp_path, url):
        pass
    straight = ("--backend", url)
    await state("rm", "Heartbeats/", "--force", "--yes", *straight)
    checked = await state_json("check", *straight)
    assert checked["errors"] == 0
    assert {(f["severity"], f["key"]) for f in checked["findings"]} >= {("warning", "Executors/e1")}
    await state("check", "--strict", *straight, code=1)
    assert [e["key"] for e in await state_json("ls", "JobHeads", *straight)] == ["JobHeads/active", "JobHeads/ended"]
    assert (await state_json("get", "JobHeads/active", *straight))["value"]["state"] == "running"
    out, _ = await state("backup", tmp_path / "b.zst", *straight)
    assert " records as of revision " in out
    _, err = await state("backup", tmp_path / "b.zst", *straight, code=2)
    assert "b.zst exists: give another name, or --overwrite" in err
    await state("backup", tmp_path / "b.zst", "--overwrite", *straight)
    _, err = await state("rm", "JobLog/", "--yes", *straight, code=2)
    assert "job active is active" in err
    assert (await state_json("rm", "JobLog/", "--yes", "--force", *straight))["removed"]
    broken = await state_json("check", *straight, code=1)
    assert broken["errors"] > 0
    keys = [entry["key"] for entry in await state_json("ls", "Audit", *straight)]
    acts = [(await state_json("get", key, *straight))["value"] for key in keys]
    assert {(act["principal"], act["address"]) for act in acts} == {(getpass.getuser(), socket.gethostname())}
    assert [(act["target"], act["outcome"].partition(":")[0]) for act in acts] == [
        ("Heartbeats/", "done"),
        ("JobLog/", "done"),
    ]


async def test_a_store_is_watched_without_a_scheduler(etcd):
    url = etcd.url(f"test-{secrets.token_hex(8)}")
    async with watching("--backend", url) as watch, await open_backend(url) as store:
        await store.put(Keyspace.Sessions, "s", b'{"a":1}')
        await store.delete(Keyspace.Sessions, "s")
        first, second = await changes_until(watch, lambda change: change["kind"] == "delete")
        assert (first["kind"], first["key"], first["value"]) == ("put", "Sessions/s", {"a": 1})
        assert second["mod_revision"] > first["mod_revision"]
        watch.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(watch.wait(), HANGS_S) == 0
        assert (await watch.stderr.read()) == b""


async def test_a_directory_that_a_scheduler_holds(tmp_path):
    async with process(tmp_path, free_port()):
        _, err = await state("ls", "--backend", f"leveldb:{tmp_path / 'state'}", code=2)
        await filled(f"leveldb:{tmp_path / 'other'}", [(Keyspace.Sessions, "s", b"{}")])
        await state("backup", tmp_path / "b.zst", "--backend", f"leveldb:{tmp_path / 'other'}")
        _, no_restore = await state("restore", tmp_path / "b.zst", "--backend", f"leveldb:{tmp_path / 'state'}", code=2)
    assert f"state directory {tmp_path / 'state'} is open in another process" in err
    assert "use that scheduler: give --scheduler HOST:PORT instead of --backend" in err
    assert "stop the Onager scheduler that uses it" in no_restore
    assert "--scheduler" not in no_restore


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("memory:", "a memory store keeps nothing: give etcd://HOST:PORT[,HOST:PORT…][/NAMESPACE] or leveldb:DIR"),
        ("leveldb:/nowhere/state", "the directory has no store"),
        ("leveldb:", "name the state directory"),
        ("redis://h", "use etcd://HOST:PORT"),
        ("etcd://user:secret@127.0.0.1:1/x", "a password does not belong into a URL"),
    ],
)
async def test_what_is_no_store(backend, message):
    _, err = await state("ls", "--backend", backend, code=2)
    assert message in err
    assert "secret" not in err
    assert not os.path.exists("/nowhere")  # noqa: ASYNC240, PTH110 - it does not wait
