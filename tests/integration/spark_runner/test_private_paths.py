"""What SQL cannot access in an executor's Spark: Onager's own files, and Java methods."""

import os

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException

OURS = "where Onager keeps files of its own"


@pytest.fixture
def token(private_dir):
    file = private_dir / "token"
    file.write_text("0123456789abcdef")
    return file


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM text.`{token}`",
        "SELECT * FROM text.`file:{token}`",
        "SELECT * FROM text.`{directory}`",
        "SELECT * FROM text.`{above}/*/token`",
        "SELECT * FROM text.`{link}`",
        "SELECT * FROM text.`{directory}/../{name}/token`",
        "SELECT 1 WHERE EXISTS (SELECT * FROM text.`{token}`)",
        "WITH t AS (SELECT * FROM binaryFile.`{token}`) SELECT count(*) FROM t",
        "EXECUTE IMMEDIATE 'SELECT * FROM text.`{token}`'",
        "CREATE OR REPLACE TEMPORARY VIEW leaked USING text OPTIONS (path '{token}'); SELECT * FROM leaked",
        "DECLARE OR REPLACE VARIABLE leaked STRING DEFAULT (SELECT first(value) FROM text.`{token}`)",
    ],
)
def test_files_that_are_ours_are_read_by_no_query(spark, token, tmp_path, text):
    (tmp_path / "link").symlink_to(token)
    text = text.format(
        token=token, directory=token.parent, name=token.parent.name, above=token.parent.parent, link=tmp_path / "link"
    )
    with pytest.raises(PySparkException) as raised:
        [spark.sql(statement).collect() for statement in text.split(";")]
    assert OURS in str(spark._jvm.onager.failure.Failures.chain(raised.value._origin).toString())


def test_what_to_do_instead_is_said(spark, token):
    with pytest.raises(IllegalArgumentException, match=f"it is in {token.parent}, where .*; read from elsewhere"):
        spark.read.text(str(token))
    with pytest.raises(IllegalArgumentException, match=f"it holds {token.parent}, .*; name the directories below it"):
        spark.read.text(str(token.parent.parent))


@pytest.mark.parametrize("version", ["", "text"], ids=["v2", "v1"])
def test_data_frames_cannot_read_private_files_either(spark, token, version):
    session = spark.newSession()
    session.conf.set("spark.sql.sources.useV1SourceList", version)
    with pytest.raises(IllegalArgumentException, match=OURS):
        session.read.text(str(token))


def test_other_files_are_read_as_ever(spark, token, tmp_path):
    (tmp_path / "words").write_text("a\nb\n")
    (tmp_path / f"{token.name}s").write_text("c\n")
    assert spark.sql(f"SELECT * FROM text.`{tmp_path}/words`").count() == 2
    assert spark.sql(f"SELECT * FROM text.`{tmp_path}/tokens`").count() == 1


@pytest.mark.parametrize("name", ["reflect", "java_method", "try_reflect", "system.builtin.reflect", "REFLECT"])
def test_sql_calls_no_java(spark, name):
    call = f"{name}('java.lang.System', 'getenv', 'PATH')"
    for text in (f"SELECT {call}", f"SELECT * FROM VALUES ({call}) t(x)", f'EXECUTE IMMEDIATE "SELECT {call}"'):
        with pytest.raises(IllegalArgumentException, match="is refused"):
            assert os.environ["PATH"] not in str(spark.sql(text).collect())
