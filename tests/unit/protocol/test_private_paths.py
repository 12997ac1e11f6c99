import os
import tempfile

import pytest

from onager import private_paths
from onager.errors import InvalidRequestError
from onager.private_paths import SYSTEM, PrivatePaths, secret_places, steps_back
from onager.scheduler.settings import SchedulerSettings


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "data" / "exchange" / "job-1").mkdir(parents=True)
    (tmp_path / "token").write_text("t")
    (tmp_path / "link").symlink_to(tmp_path / "data" / "exchange")
    (tmp_path / "up").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path, PrivatePaths([tmp_path / "data" / "exchange", str(tmp_path / "token"), None, ""])


@pytest.mark.parametrize(
    "path",
    [
        "{0}/data/exchange",
        "{0}/data/exchange/",
        "file:{0}/data/exchange",
        "file://{0}/data/exchange",
        "{0}/data/exchange/job-1/out",
        "{0}/data/exchange/new/out",
        "{0}/data",
        "{0}",
        "/",
        "{0}/link",
        "{0}/link/out",
        "{0}/up/data/exchange/out",
        "{0}/elsewhere/../data/exchange/out",
        "data/exchange/out",
        "{0}/token",
    ],
)
def test_what_is_private_is_met_however_it_is_named(place, path):
    assert place[1].meets(path.format(place[0])) is not None


@pytest.mark.parametrize("path", ["{0}/out", "{0}/data/out", "{0}/data/exchange2", "{0}/tokens", "s3a://bucket/data"])
def test_other_places_are_not(place, path):
    assert place[1].meets(path.format(place[0])) is None


def test_a_private_place_behind_a_uri_is_known_by_its_text():
    private = PrivatePaths(["s3a://bucket/exchange"])
    assert private.meets("s3a://bucket/exchange/out") == "s3a://bucket/exchange"
    assert private.meets("s3a://bucket") == "s3a://bucket/exchange"
    assert private.meets("s3a://bucket/out") is None


def test_a_directory_that_is_mounted_twice_is_known_at_both_places(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "out").mkdir(parents=True)
    here, plain = (tmp_path / "here").stat(), os.path.samestat
    there = (tmp_path / "there").stat()
    monkeypatch.setattr(
        os.path, "samestat", lambda a, b: plain(a, b) or {a.st_ino, b.st_ino} == {here.st_ino, there.st_ino}
    )
    assert PrivatePaths([tmp_path / "here"]).meets(str(tmp_path / "there" / "out")) == str(tmp_path / "here")


def test_steps_back_are_seen():
    assert [p for p in ("/a/../b", "/a/./b", "/a/b", "file:/a/..", "/a/..b", "/a.b") if steps_back(p)] == [
        "/a/../b",
        "/a/./b",
        "file:/a/..",
    ]


def test_what_no_file_can_be_called_is_the_callers_error(place):
    with pytest.raises(InvalidRequestError, match="cannot be a path"):
        place[1].meets("/out\0put")


def test_the_directory_of_a_token_or_key_is_private_with_all_that_lies_beside_them(tmp_path):
    secrets = tmp_path / "secrets"
    (secrets / "..data").mkdir(parents=True)
    (secrets / "..data" / "token").write_text("t")
    (secrets / "token").symlink_to("..data/token")  # as Kubernetes does
    private = PrivatePaths([], [secrets / "token", None], [str(tmp_path / "exchange"), ""])
    for path in ("token", "ca.key", "..data/token", "scheduler/token", ""):
        assert private.meets(str(secrets / path)), path
    assert private.meets(str(tmp_path / "data")) is None


def test_what_a_link_leads_to_is_private_too(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "token").write_text("t")
    (tmp_path / "etc" / "token").symlink_to(tmp_path / "vault" / "token")
    private = PrivatePaths([], [tmp_path / "etc" / "token"])
    assert private.meets(str(tmp_path / "etc" / "other"))
    assert private.meets(str(tmp_path / "vault" / "other"))


@pytest.mark.parametrize(
    "secret", ["auth_token_file", "outgoing_auth_token_file", "tls_key", "outgoing_tls_key", "webhook_secret_file"]
)
def test_what_lies_beside_each_secret_of_a_scheduler_is_private(tmp_path, secret):
    private = SchedulerSettings(**{secret: tmp_path / "secrets" / "file"}).private
    assert private.meets(str(tmp_path / "secrets" / "other"))
    assert private.meets(str(tmp_path / "data")) is None


@pytest.mark.parametrize("used", ["home", "working", "shared", "temporary"])
def test_of_a_directory_that_is_used_for_other_things_only_the_file_is_private(tmp_path, monkeypatch, used):
    monkeypatch.setenv("HOME", str(tmp_path / ("at/home" if used == "home" else "")))
    (tmp_path / "at" / "home").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "at" / "home" if used == "working" else tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("at" if used == "temporary" else "elsewhere")))
    (tmp_path / "at" / "token").write_text("t")
    shared = [str(tmp_path / "at" / "exchange")] if used == "shared" else []
    assert secret_places([tmp_path / "at" / "token"], shared) == [tmp_path / "at" / "token"]


def test_the_file_system_is_not_looked_at_before_a_path_is_met(monkeypatch, tmp_path):
    """Schedulers make these on their event loop, and look at them in threads."""
    with monkeypatch.context() as context:
        context.setattr(private_paths.os.path, "realpath", None)
        settings = SchedulerSettings(
            auth_token_file=tmp_path / "secrets" / "token", tls_key=tmp_path / "secrets" / "key"
        )
        private = settings.private
    assert private.meets(str(tmp_path / "secrets" / "other"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("{0}/data/in/x", None),
        ("{0}/warehouse/t", None),
        ("{0}/warehouse", None),
        ("{0}/out", "it is in none of the directories that jobs may use"),
        ("{0}/data/in", "where Onager keeps files of its own"),
        ("{0}/data/in/link/x", "it is in none"),
        ("{0}/data/in/exchange/job-1", "where Onager keeps files of its own"),
        ("{0}/data/in/../other", "it is in none"),
        ("/proc/self/environ", "which is the system's"),
        ("/dev/shm/x", "which is the system's"),
    ],
)
def test_with_roots_only_what_lies_in_them_is_for_jobs(tmp_path, path, why):
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "data" / "in" / "link").symlink_to(tmp_path)
    own = [tmp_path / "data" / "in" / "exchange", *SYSTEM]
    private = PrivatePaths(own, roots=[str(tmp_path / "data" / "in")], tables=str(tmp_path / "warehouse"))
    error = private.refusal(path.format(tmp_path))
    assert error is None if why is None else error is not None and why in error


def test_without_roots_everything_but_what_is_private_is_for_jobs(tmp_path):
    private = PrivatePaths([tmp_path / "exchange", *SYSTEM])
    assert private.refusal(str(tmp_path / "out")) is None
    assert private.refusal(str(tmp_path / "exchange" / "job-1")) is not None
    assert PrivatePaths([], roots=[]).refusal(str(tmp_path)) is not None


def test_a_root_below_a_private_place_is_for_jobs(tmp_path):
    private = PrivatePaths([tmp_path, *SYSTEM], roots=[str(tmp_path / "data")], tables="/dev/shm/warehouse")
    assert private.refusal(str(tmp_path / "data" / "out")) is None
    assert private.refusal("/dev/shm/warehouse/t") is None
    assert private.refusal(str(tmp_path / "other")) is not None
    assert private.refusal("/dev/shm/other") is not None
