"""Secrets among settings, wherever they are shown."""

import json
import re
import time
from collections.abc import Callable

import pytest

from onager.errors import InvalidSettingError
from onager.protocol import onager_pb2 as pb
from onager.redaction import REDACTED, shown_json, shown_name, shown_script, shown_text, shown_value, words_of
from onager.scheduler.jobs.job_specs import decode_spec, decode_spec_shown, encode_spec
from onager.state_admin.decoding import content

SECRET = "do-not-show-me"


@pytest.mark.parametrize(
    "name",
    ["spark.hadoop.fs.s3a.secret.key", "spark.my.PASSWORD", "spark.x.accessKey", "fs.access.key", "spark.auth.Token"],
)
def test_values_are_redacted_by_the_names_that_spark_redacts(name: str) -> None:
    assert shown_value(name, SECRET) == REDACTED
    assert SECRET not in str(InvalidSettingError(name, SECRET, "no"))


def test_other_values_are_shown() -> None:
    assert shown_value("spark.sql.shuffle.partitions", "8") == "8"
    assert shown_value("spark.x", "jdbc://host/?password=p") == REDACTED
    assert shown_value("spark.x", f"etcd://u:{SECRET}@host") == f"etcd://u:{REDACTED}@host"


def test_values_of_flags_are_shown_for_what_they_are() -> None:
    assert str(InvalidSettingError("--tls-ca", "secrets/ca.pem", "no")) == "--tls-ca='secrets/ca.pem': no"
    assert "'/run/secrets/token'" in str(InvalidSettingError("--auth-token-file", "/run/secrets/token", "no"))
    assert "'secrets/views'" in str(InvalidSettingError("views-from", "secrets/views", "no"))
    for value in (f"etcd://u:{SECRET}@host", f"spark.my.password={SECRET}"):
        assert SECRET not in str(InvalidSettingError("--backend", value, "no"))
    assert SECRET not in str(InvalidSettingError("--token", SECRET, "no"))
    assert REDACTED in str(InvalidSettingError("sql.x", "a secret", "no"))


def test_the_words_of_a_jobs_own_expression_count_besides() -> None:
    words = words_of({"spark.redaction.regex": "(?i)secret|my[.]pin|iban"})
    assert shown_value("spark.x.IBAN", SECRET, words) == REDACTED
    assert shown_value("spark.x.password", SECRET, words) == REDACTED
    assert shown_value("spark.x.other", "v", words) == "v"


def test_an_expression_that_takes_for_ever_is_not_carried_out() -> None:
    words = words_of({"spark.redaction.regex": "(a+)+$" * 100_000})
    assert shown_value("a" * 1000 + "!", "v", words) == "v"


def assert_grows_with_its_text(work: Callable[[str], object], text: Callable[[int], str], size: int) -> None:
    """Of a text that is eight times as long *work* takes eight times as long, and not 64 times.

    What it takes here counts in processor time, the least of several tries, so it does not matter who else computes.
    """
    taken_s: dict[int, list[float]] = {size: [], 8 * size: []}
    for _ in range(5):
        for characters, tries_s in taken_s.items():
            made = text(characters)
            began_s = time.thread_time()
            work(made)
            tries_s.append(time.thread_time() - began_s)
    assert min(taken_s[8 * size]) < 24 * min(taken_s[size])


@pytest.mark.parametrize(
    "text",
    ["token", "secret.", "tokenfil", "token-file", "password=", "token : x", "password='", 'token"    ', "://a:", "a"],
)
def test_any_text_is_redacted_in_little_time(text: str) -> None:
    """The regular expressions are one call each, in which no other thread runs."""
    assert_grows_with_its_text(shown_text, lambda size: text * (size // len(text)) + " token ://", 2**15)


@pytest.mark.parametrize("text", ["set ", "set a=", "set `", "a'", "'a'", "1 ", "password 'a", "token", "a="])
def test_any_script_is_redacted_in_little_time(text: str) -> None:
    words = words_of({"spark.redaction.regex": "|".join(f"word-{n}" for n in range(150))})
    assert_grows_with_its_text(
        lambda script: shown_script(script, words), lambda size: text * (size // len(text)) + " token ://", 2**13
    )


@pytest.mark.parametrize("show", [shown_text, shown_script])
@pytest.mark.parametrize(
    ("before", "again", "behind"), [("://", "a:", ""), ('secret="', "\\", ""), ("", "a", "token=")]
)
def test_long_words_are_redacted_in_little_time(
    show: Callable[[str], str], before: str, again: str, behind: str
) -> None:
    assert_grows_with_its_text(show, lambda size: 2 * (before + again * (size // len(again)) + behind), 2**14)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TEMP VIEW v USING jdbc OPTIONS (user 'u', password '{SECRET}')",
        f'CREATE TEMP VIEW v USING jdbc OPTIONS (password = "{SECRET}", user "u")',
        f"CREATE TABLE t (a INT) USING csv TBLPROPERTIES ('my.access.key'='{SECRET}', 'a'='b')",
        f"SELECT * FROM t WITH (`auth.token` = '{SECRET}')",
        f"SELECT * FROM read_it(user => 'u', password => '{SECRET}')",
        "OPTIONS (password 'do-not' '-show-me', a 'b')",
        f"OPTIONS (password r'{SECRET}')",
        f"OPTIONS (password 'it\\'s {SECRET}')",
        "OPTIONS (spark.my.pin 9876501)",
        f"SET `x.secret.key` = {SECRET}",
        f"SET `x.secret.key` = `{SECRET}`; SELECT 1",
        f"SET x.secret.key={'a' * 5000}{SECRET}",
        f"SET 'x.secret.key' = '{SECRET}'",
    ],
)
def test_sql_is_shown_without_the_secrets_that_it_sets_or_gives_as_options(text: str) -> None:
    shown = shown_script(text, frozenset({"pin"}))
    assert REDACTED in shown
    assert not re.search("show-me|9876501", shown)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT token, 'x' FROM t WHERE a.token = b.token AND kind = 'password'",
        "SELECT a FROM t WITH (header 'true', password_file '/x') LIMIT 10",
        "SET x.y = 3; SELECT `token` FROM t",
    ],
)
def test_other_sql_is_shown_as_it_is(text: str) -> None:
    assert shown_script(text) == text


@pytest.mark.parametrize(
    "text", ["fs.s3a.secret.key.x=V", "my-password = 'V'", '{"accessToken": "V"}', "`auth.token`: V", "xpassword=V"]
)
def test_texts_are_shown_without_the_values_of_secrets(text: str) -> None:
    assert shown_text(text) == re.sub("[\"']?V[\"']?", REDACTED, text)


@pytest.mark.parametrize(
    "name",
    [f"password={SECRET}", f"SET password = {SECRET} x", f"OPTIONS (my.token '{SECRET}')", f"f(token => '{SECRET}"],
)
def test_a_name_is_shown_without_secrets_and_what_is_shown_stays_as_it_is(name: str) -> None:
    shown = shown_name(name)
    assert SECRET not in shown
    assert shown.count(REDACTED) == 1
    assert shown_name(shown) == shown


def spec() -> pb.JobSpec:
    return pb.JobSpec(
        sql=pb.SqlScript(text=f"SET fs.s3a.secret.key={SECRET}; SELECT 1"),
        conf={"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.app": "shown", "spark.my.pin": SECRET}
        | {"spark.redaction.regex": "(?i)pin"},
        views=[pb.View(name="v", path=f"s3a://u:{SECRET}@b/p", format="csv", options={"password": SECRET})],
        sink=pb.Sink(path="p", format="csv", options={"accessKey": SECRET}),
    )


def test_a_specification_is_shown_without_secrets_and_stored_with_them() -> None:
    stored = encode_spec(spec())
    shown = decode_spec_shown(stored)
    assert SECRET not in str(shown)
    assert shown.conf["spark.app"] == "shown"
    assert shown.sql.text == f"SET fs.s3a.secret.key={REDACTED}; SELECT 1"
    assert decode_spec(stored) == spec()


def test_records_are_shown_without_secrets() -> None:
    assert SECRET not in content(encode_spec(spec()))
    function = pb.JobSpec(python=pb.PythonFunction(arguments_json=json.dumps({"password": SECRET})))
    assert SECRET not in content(encode_spec(function))
    assert SECRET not in str(decode_spec_shown(encode_spec(function)))
    graph = json.dumps({"plan": {"sink": {"options": [["fs.s3a.secret.key", SECRET], ["header", "true"]]}}})
    assert json.loads(content(graph.encode()))["plan"]["sink"]["options"][1] == ["header", "true"]
    assert SECRET not in content(graph.encode())


def test_what_is_no_setting_stays() -> None:
    value = {"name": "token", "list": ["password", "x"], "options": None, "conf": "x", "n": [1, {"secret": "kept"}]}
    assert shown_json(value) == value
