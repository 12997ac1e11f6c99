"""Who did what: reported by another scheduler than the one that was asked, to whoever may know."""

import asyncio
import json
import secrets
from contextlib import AsyncExitStack

import httpx
import pytest

import onager
from onager.access_errors import AuthenticationError, RoleRefusedError
from onager.clock import SystemClock
from onager.protocol.security import ClientSecurity
from onager.scheduler.http.server import serving_http
from onager.state_backend.memory import MemoryStore
from tests.integration.security.parts import cli
from tests.integration.security.test_between_schedulers import scheduler


@pytest.fixture
async def schedulers(tmp_path):
    """Return the addresses of two schedulers over one store, with tokens of ann, bob and an admin, carl."""
    roles = {"ann": "client", "bob": "client", "carl": "admin", "them": "scheduler"}
    lines = {name: f"{name} {role} {secrets.token_hex(16)}\n" for name, role in roles.items()}
    for name, line in lines.items():
        (tmp_path / name).write_text(line)
    (tmp_path / "all").write_text("".join(lines.values()))
    store = MemoryStore(SystemClock())
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(scheduler(store, tmp_path, name, auth_token_file=tmp_path / "all"))
            for name in ("one", "two")
        ]
        yield [each.schedulers.record.address for each in made]


def as_user(tmp_path, name, address):
    return onager.connect(address, security=ClientSecurity(auth_token_file=tmp_path / name))


async def test_another_scheduler_tells_who_submitted_and_who_cancelled(tmp_path, schedulers):
    one, two = schedulers

    def ask() -> str:
        with as_user(tmp_path, "ann", one) as ann:
            job_id = ann.sql("SELECT 1").id
        with as_user(tmp_path, "bob", one) as bob:
            assert bob.job(job_id).cancel("too slow") == "cancelled"
        with as_user(tmp_path, "carl", two) as carl:
            (job,) = carl.jobs()
            assert (job.job_id, job.principal) == (job_id, "ann")
            progress = carl.job(job_id).progress()
            assert (progress.principal, str(progress.failure)) == (
                "ann",
                f"job {job_id} was cancelled: too slow, by bob",
            )
            (act,) = carl.audit(target=job_id)
            assert (act.principal, act.address, act.scheduler_id) == ("bob", "127.0.0.1", "one")
            assert (act.action, act.detail, act.outcome) == ("cancel", "too slow", "done")
            carl.state.remove(f"JobHeads/{job_id}", is_dry_run=False)
            assert [
                (act.principal, act.action) for act in carl.audit() if act.action in ("cancel", "remove_state")
            ] == [
                ("bob", "cancel"),
                ("carl", "remove_state"),
            ]
        with as_user(tmp_path, "ann", two) as ann, pytest.raises(RoleRefusedError):
            list(ann.audit())
        return job_id

    job_id = await asyncio.to_thread(ask)

    def command(*words: str) -> str:
        done = cli(*words, "--scheduler", two, "--auth-token-file", tmp_path / "carl")
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = await asyncio.to_thread(command, "audit", "--action", "cancel")
    assert all(word in shown.splitlines()[-1] for word in ("bob", "127.0.0.1", "one", "cancel", job_id, "too slow"))
    found = await asyncio.to_thread(command, "audit", "--by", "carl", "--action", "remove_state", "-o", "json")
    assert [act["outcome"] for act in json.loads(found)] == ["done: 1 removed"]
    events = await asyncio.to_thread(command, "events", job_id)
    assert events.splitlines()[-1].endswith("job_cancelled      too slow, by bob")


async def test_submissions_fetches_logins_and_refusals_are_reported_too(tmp_path):
    roles = {"ann": "client", "eve": "viewer", "carl": "admin", "them": "scheduler"}
    for name, role in roles.items():
        (tmp_path / name).write_text(f"{name} {role} {secrets.token_hex(16)}\n")
    (tmp_path / "all").write_text("".join((tmp_path / name).read_text() for name in roles))
    (tmp_path / "wrong").write_text(f"{secrets.token_hex(16)}\n")
    async with AsyncExitStack() as stack:
        settings = {"auth_token_file": tmp_path / "all", "http_listen": "127.0.0.1:0"}
        one = await stack.enter_async_context(scheduler(MemoryStore(SystemClock()), tmp_path, "one", **settings))
        url = await stack.enter_async_context(serving_http(one, "127.0.0.1:0", SystemClock()))
        address = one.schedulers.record.address

        def use() -> str:
            with as_user(tmp_path, "ann", address) as ann:
                job_id = ann.sql("SELECT 1").id
            with as_user(tmp_path, "eve", address) as eve, pytest.raises(RoleRefusedError):
                eve.sql("SELECT 1")
            for _ in range(20):
                with as_user(tmp_path, "wrong", address) as nobody, pytest.raises(AuthenticationError):
                    nobody.jobs()
            token = (tmp_path / "ann").read_text().split()[-1]
            for given in (token, "no token at all, or a wrong one"):
                httpx.post(
                    f"{url.rstrip('/')}/api/v1/login", json={"token": given}, headers={"origin": url.rstrip("/")}
                )
            return job_id

        job_id = await asyncio.to_thread(use)
        await one.notes.store()

        def seen_by_carl() -> list[tuple[str, str, str, str]]:
            with as_user(tmp_path, "carl", address) as carl:
                return [(act.principal, act.action, act.target, act.detail) for act in carl.audit()]

        found = await asyncio.to_thread(seen_by_carl)
    assert ("ann", "submit", job_id, "") in found
    assert ("eve", "refuse", "SubmitJob", "") in found
    assert ("ann", "login", "client", "") in found
    wrong = [(target, detail) for who, action, target, detail in found if (who, action) == ("", "refuse")]
    assert ("ListJobs", "") in wrong
    assert ("", "16 more, of: ListJobs, /api/v1/login") in wrong, "twenty calls and a login, six records"
