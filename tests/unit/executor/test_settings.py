"""Settings: what is refused, and what the environment says."""

import pytest
import structlog
from pydantic import ValidationError
from structlog.testing import capture_logs

from onager.errors import InvalidSettingError
from onager.executor.main import _warn_of_places, pause_s
from onager.executor.settings import MAX_CHECKED_ROOTS, ExecutorSettings
from onager.place_files import root_name


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:70000", "a:1,b"])
def test_an_address_without_host_and_port_is_refused(address):
    with pytest.raises(ValidationError, match="give host:port"):
        ExecutorSettings(exchange_dir="/x", scheduler=address)


def test_several_addresses_are_kept_in_order():
    settings = ExecutorSettings(exchange_dir="/x", scheduler="a:1, b:2")
    assert settings.scheduler_addresses == ("a:1", "b:2")


@pytest.mark.parametrize(
    "bad", [{"slots": 0}, {"exchange_dir": " "}, {"executor_id": "a/b"}, {"log_level": "loud"}, {"unknown": 1}]
)
def test_what_cannot_be_used_is_refused(bad):
    with pytest.raises(ValidationError):
        ExecutorSettings(**{"exchange_dir": "/x", **bad})


def test_the_environment_names_the_same_settings(monkeypatch):
    monkeypatch.setenv("ONAGER_EXECUTOR_EXCHANGE_DIR", "/from/env")
    monkeypatch.setenv("ONAGER_EXECUTOR_SLOTS", "7")
    settings = ExecutorSettings()
    assert (settings.exchange_dir, settings.slots) == ("/from/env", 7)


def test_a_port_for_streams_that_others_reach_needs_a_token_or_a_word(tmp_path):
    open_to_all = {"exchange_dir": "/x", "stream_listen": "0.0.0.0:0"}
    with pytest.raises(InvalidSettingError, match="other machines reach this address"):
        ExecutorSettings(**open_to_all).check_stream_port()
    ExecutorSettings(**open_to_all, insecure=True).check_stream_port()
    ExecutorSettings(**open_to_all, auth_token_file=tmp_path).check_stream_port()
    ExecutorSettings(exchange_dir="/x").check_stream_port()


@pytest.mark.parametrize("address", ["host:0", "0.0.0.0:7", "[::]:7"])
@pytest.mark.parametrize("field", ["advertise", "stream_advertise"])
def test_an_address_that_leads_others_nowhere_is_not_sent_to_them(field, address):
    with pytest.raises(ValidationError, match="under which others reach this process"):
        ExecutorSettings(exchange_dir="/x", **{field: address})


@pytest.mark.parametrize(
    ("given", "is_reached"),
    [
        ({}, True),
        ({"scheduler": "localhost:1,127.0.0.1:2"}, True),
        ({"scheduler": "127.0.0.1:1,scheduler-2:1"}, False),
        ({"scheduler": "scheduler-2:1", "stream_listen": "10.0.0.1:7"}, True),
        ({"scheduler": "scheduler-2:1", "stream_advertise": "executor-1:7"}, True),
    ],
)
def test_a_port_for_streams_on_loopback_is_not_offered_to_other_machines(given, is_reached):
    assert ExecutorSettings(exchange_dir="/x", **given).is_stream_reached is is_reached


def test_an_id_is_drawn_once_and_a_given_one_is_kept():
    drawn = ExecutorSettings(exchange_dir="/x", host="here").identified()
    assert drawn.executor_id.startswith("here-")
    assert drawn.identified() is drawn
    assert ExecutorSettings(exchange_dir="/x", executor_id="e").identified().executor_id == "e"


def test_the_first_restart_is_immediate_and_pauses_grow_to_half_a_minute():
    assert [pause_s(deaths) for deaths in (1, 2, 3, 4, 30)] == [0.0, 0.5, 1.0, 2.0, 30.0]


@pytest.mark.parametrize(
    ("given", "warehouse"),
    [
        ({"exchange_dir": "/a/exchange"}, "/a/warehouse"),
        ({"exchange_dir": "file:///a/exchange/"}, "/a/warehouse"),
        ({"exchange_dir": "/a/exchange", "warehouse": "/w"}, "/w"),
    ],
)
def test_tables_without_a_location_lie_beside_the_exchange_unless_set_otherwise(given, warehouse):
    assert ExecutorSettings(**given).warehouse_dir == warehouse


def test_what_lies_beside_a_token_or_a_key_is_private_and_that_it_cannot_be_is_reported(tmp_path):
    for name in ("secrets", "tls", "exchange"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "token").write_text("t")
    settings = ExecutorSettings(
        exchange_dir=str(tmp_path / "exchange"),
        auth_token_file=tmp_path / "secrets" / "token",
        tls_key=tmp_path / "tls" / "key",
    )
    for path in ("secrets/others-token", "tls/ca.key", "exchange/x"):
        assert settings.private.meets(str(tmp_path / path)), path
    assert settings.private.meets(str(tmp_path / "data")) is None
    beside = settings.model_copy(update={"auth_token_file": tmp_path / "token"})
    assert beside.private.meets(str(tmp_path / "token"))
    assert beside.private.meets(str(tmp_path / "data")) is None
    for given, reported in ((settings, []), (beside, ["secrets_beside_other_files"])):
        with capture_logs() as logs:
            _warn_of_places(given, structlog.get_logger())
        assert [log["event"] for log in logs] == reported


@pytest.mark.parametrize(
    ("given", "roots"),
    [
        ({}, None),
        ({"scheduler": "localhost:1,[::1]:2"}, None),
        ({"scheduler": "localhost:1", "roots": ("/data",)}, ("/data",)),
        ({"scheduler": "localhost:1", "auth_token_file": "/tokens/executor"}, ()),
        ({"scheduler": "localhost:1,scheduler-2:1"}, ()),
        ({"scheduler": "scheduler-2:1", "insecure": True}, ()),
        ({"scheduler": "scheduler-2:1", "roots": ("/data", "/srv")}, ("/data", "/srv")),
    ],
)
def test_which_places_are_open_to_jobs(given, roots):
    private = ExecutorSettings(exchange_dir="/var/lib/onager/exchange", **given).private
    assert private.roots == roots
    assert private.refusal("/var/lib/onager/warehouse/t") is None
    for path in ("/proc/self/environ", "/sys/kernel", "/dev/mem", "/var/lib/onager/exchange/job-1"):
        assert private.refusal(path) is not None
    assert (private.refusal("/data/in") is None) is (roots is None or "/data" in roots)
    assert (private.refusal("/home/me") is None) is (roots is None)


def test_roots_are_places_unless_they_are_files_or_elsewhere_or_known_by_another_name(tmp_path):
    for name in ("exchange", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.csv").touch()
    roots = [str(tmp_path / name) for name in ("data", "file.csv", "exchange", "not-mounted")]
    settings = ExecutorSettings(
        exchange_dir=str(tmp_path / "exchange"), warehouse=str(tmp_path / "w"), roots=[*roots, "s3a://bucket/x"]
    )
    assert list(settings.places.values()) == [str(tmp_path / name) for name in ("exchange", "w", "data", "not-mounted")]
    assert root_name(f"{roots[0]}/") in settings.places


def test_a_root_that_is_spelled_twice_is_one_place_and_the_whole_disk_is_none():
    roots = ["/data", "//data/", "file:/data", "/srv/../data", "/"]
    settings = ExecutorSettings(exchange_dir="/x", warehouse="/w", roots=roots)
    assert list(settings.places.values()) == ["/x", "/w", "/data"]


def test_roots_may_be_left_unchecked_by_name():
    settings = ExecutorSettings(exchange_dir="/x", warehouse="/w", roots=["/a", "/b"], unchecked_roots=["/b/"])
    assert list(settings.places.values()) == ["/x", "/w", "/a"]
    assert settings.private.roots == ("/a", "/b")
    with pytest.raises(ValidationError, match=r"unchecked_roots: /c: name directories that are also among the roots"):
        ExecutorSettings(exchange_dir="/x", roots=["/a"], unchecked_roots=["/a", "/c"])


def test_so_many_roots_are_checked_and_more_may_be_named_unchecked():
    roots = [f"/data/{number}" for number in range(MAX_CHECKED_ROOTS + 1)]
    with pytest.raises(ValidationError, match=r"roots: there are 65, and an executor checks at most 64: give a direct"):
        ExecutorSettings(exchange_dir="/x", roots=roots)
    settings = ExecutorSettings(exchange_dir="/x", roots=roots, unchecked_roots=roots[:1])
    assert len(settings.places) == MAX_CHECKED_ROOTS + 2
