"""Scripts of SQL with control flow: rows and conditions are those of plain Spark."""

import json

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from onager.programs.scripting.calls import TYPE_URL
from onager.programs.scripting.errors import ScriptLimitError
from onager.programs.scripting.scripts import carry_out
from tests.integration.planning.connect_client import ConnectClient, ConnectError
from tests.integration.planning.sql_scripts_beside_spark import Case, InProcess, by_onager, cases, plainly
from tests.support.selection import some
from tests.support.spark.one_executor import OneExecutor

CASES = list(cases())


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 150


@pytest.mark.parametrize("case", some(CASES, 8), ids=lambda case: case.name)
def test_a_script_gives_what_plain_spark_gives(case: Case, executor: OneExecutor, client: ConnectClient) -> None:
    expected = plainly(executor, case)
    assert repr(by_onager(client, executor, case)) == repr(expected)


def test_a_loop_that_does_not_end_is_ended_with_its_line(executor: OneExecutor, client: ConnectClient) -> None:
    text = "BEGIN\n  DECLARE n INT DEFAULT 0;\n  WHILE true DO\n    SET n = n + 1;\n  END WHILE;\nEND"
    with pytest.raises(ScriptLimitError, match="has not ended after 10 statements and conditions: line 4 was next"):
        carry_out(InProcess(client, executor), text, {}, max_asks=10)


def test_values_are_bound_to_names(executor: OneExecutor, client: ConnectClient) -> None:
    text = (
        "BEGIN DECLARE x INT DEFAULT :n; WHILE x < 7 DO SET x = x + :n; END WHILE; "
        "SELECT x, :day AS day, ':n' AS t; END"
    )
    rows = carry_out(InProcess(client, executor), text, {"n": 4, "day": "2026-11-30"})
    assert rows.table.to_pylist() == [{"x": 8, "day": "2026-11-30", "t": ":n"}]


def test_what_a_script_leaves_in_its_session_is_what_is_not_local(executor: OneExecutor, client: ConnectClient) -> None:
    text = (
        "BEGIN DECLARE mine INT; EXECUTE IMMEDIATE 'DECLARE ours INT'; SET mine = 1, ours = 2; "
        "CREATE TEMPORARY VIEW v AS SELECT mine; END"
    )
    carry_out(InProcess(client, executor), text, {})
    assert [(entry.kind, entry.name) for entry in client.stored.entries] == [("variable", "ours"), ("view", "v")]


def test_a_statement_is_one_call_and_a_replayed_script_asks_the_same(
    executor: OneExecutor, client: ConnectClient
) -> None:
    text = (
        "BEGIN DECLARE n INT DEFAULT 0; WHILE n < 2 DO SET n = n + 1; END WHILE; "
        "FOR r AS SELECT n AS a DO SELECT a; END FOR; END"
    )
    asked = []
    for _ in range(2):
        calls = InProcess(client, executor)
        carry_out(calls, text, {})
        asked.append([(ask.kind, ask.text, ask.line) for ask in calls.asked])
    assert asked[0] == asked[1]
    kinds = [kind for kind, _, _ in asked[0]]
    assert kinds == ["change", "query", "change", "query", "change", "query", "query", "query"]


@pytest.mark.parametrize("said", [b"", b"[]", b'{"ask": "fly", "frames": []}', b'{"ask": "change"}'])
def test_a_damaged_place_in_a_script_is_refused(said: bytes, client: ConnectClient) -> None:
    client.spark.client.add_threadlocal_user_context_extension(AnyMessage(type_url=TYPE_URL, value=said))
    with pytest.raises(ConnectError, match=r"place of a statement in its script cannot be read|of a newer version"):
        client.sql("SET VARIABLE x = 1")


def test_a_value_that_is_no_arrow_is_refused(client: ConnectClient) -> None:
    variable = {
        "frame": 0,
        "block": 0,
        "name": "x",
        "type": '{"type":"struct","fields":[]}',
        "rows": "AAAA",
        "default_sql": "",
    }
    frames = [{"kind": "script", "label": "", "blocks": [{"label": "a", "variables": [variable], "cursors": []}]}]
    said = AnyMessage(type_url=TYPE_URL, value=json.dumps({"ask": "", "frames": frames}).encode())
    client.spark.client.add_threadlocal_user_context_extension(said)
    with pytest.raises(ConnectError):
        client.sql("SHOW DATABASES")
