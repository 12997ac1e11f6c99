"""Ways for SQL, a UDF, a planning function, a client of Spark Connect and a program to read what is not theirs.

Each is refused, or shows none of the secrets that are planted. What Python of a job can read all the same is listed in
docs/security.md, and tried here, too, so that the list stays true.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onager.client import View
from onager.errors import OnagerError
from tests.integration.security.jailed import Jail, connect_outcomes, jail
from tests.support.waiting import HANGS_S, until

REFUSALS = (
    "jobs may use", "is refused", "cannot be read", "cannot be used", "cannot be written", "which no job reads",
    "a job cannot set", "a setting of executors", "needs to be named", "only SET, RESET, USE",
    "would be taken from the environment", "External Entity: Failed to read",
    "a function's jars and files are not kept", "takes the short name of a codec", "all jobs would share it",
)  # fmt: skip


@pytest.fixture(scope="module")
def jailed():
    with jail() as made:
        yield made


def outcome(jailed: Jail, act) -> str:
    """Return what a way has shown: rows, or an error with all that is reported of it."""
    with jailed.client("bob") as client:
        try:
            return f"gave {act(client).to_arrow().to_pylist()}"
        except OnagerError as error:
            return f"raised {error} {vars(error)}"


def refused(jailed: Jail, shown: str) -> None:
    assert jailed.planted.seen(shown) == []
    assert shown.startswith("raised"), shown
    assert any(words in shown for words in REFUSALS), shown


XML = "OPTIONS (path '{data}/rows.xml', rowTag 'row', rowValidationXSDPath '{data}/schema.xsd')"
SQL = {
    "a file": "SELECT * FROM text.`{token}`",
    "a directory of files": "SELECT * FROM text.`{tokens}`",
    "a pattern": "SELECT * FROM text.`{tokens}/*`",
    "a link": "SELECT * FROM text.`{data}/in/sub/link.txt`",
    "links below a directory": "CREATE TEMPORARY VIEW v USING text OPTIONS"
    " (path '{data}/in', recursiveFileLookup true); SELECT * FROM v",
    "a header": "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '{data}/in/sub/link.txt', header true); DESCRIBE v",
    "a table over a file": "CREATE TABLE stolen (line STRING) USING text LOCATION '{tokens}'; SELECT * FROM stolen",
    "a statement in a text": "EXECUTE IMMEDIATE 'SELECT * FROM text.`{token}`'",
    "the environment of the JVM": "SELECT * FROM binaryFile.`/proc/self/environ`",
    "the environment of a scheduler": "SELECT * FROM binaryFile.`/proc/{scheduler}/environ`",
    "another root of the system": "SELECT * FROM text.`/proc/self/root{token}`",
    "a mount table": "CREATE TEMPORARY VIEW v USING text OPTIONS"
    " (path 'viewfs://m/x', 'fs.viewfs.mounttable.m.link./x' 'file://{token}'); SELECT * FROM v",
    "another file system": "CREATE TEMPORARY VIEW v USING text OPTIONS"
    " (path '{token}', 'fs.file.impl' 'org.apache.hadoop.fs.LocalFileSystem'); SELECT * FROM v",
    "a setting of Hadoop": "SET fs.file.impl.disable.cache = true; SELECT 1",
    "a program": "SELECT TRANSFORM(id) USING 'cat {token}' AS (l STRING) FROM range(1)",
    "a program that lists": "SELECT TRANSFORM(id) USING 'env' AS (l STRING) FROM range(1)",
    "a variable of the environment": "SELECT '${{env:ONAGER_PLANTED}}'",
    "a property": "SELECT '${{system:user.home}}'",
    "a secret setting": "SELECT '${{spark.hadoop.planted.secret.key}}'",
    "a method": "SELECT reflect('java.lang.System', 'getenv', 'ONAGER_PLANTED')",
    "a database": "CREATE TEMPORARY VIEW v USING jdbc OPTIONS"
    " (url 'jdbc:derby:memory:x;create=true', dbtable 'x', sessionInitStatement 'CALL x()'); SELECT * FROM v",
    "a catalog": "SET spark.sql.catalog.x = org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog;"
    " SELECT * FROM x.y.z",
    "a jar": "CREATE TEMPORARY FUNCTION f AS 'a.B' USING JAR '{data}/x.jar'; SELECT f(1)",
    "a function of Hive": "CREATE TEMPORARY FUNCTION f AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFReflect2';"
    " SELECT f('a', 'length')",
    "a schema of XML": f"CREATE TEMPORARY VIEW v USING xml {XML}; SELECT * FROM v",
    "another site": "SELECT * FROM text.`http://127.0.0.1:1/x`",
    "another job's result": "SELECT * FROM binaryFile.`{result}`",
    "all results": "CREATE TEMPORARY VIEW v USING binaryFile OPTIONS (path '{exchange}', recursiveFileLookup true);"
    " SELECT * FROM v",
    "the store": "SELECT * FROM binaryFile.`{state}`",
    "the directory of the store": "SELECT * FROM text.`{state_dir}`",
    "an output through another file system": "INSERT OVERWRITE DIRECTORY '{data}/o' USING parquet"
    " OPTIONS ('fs.file.impl' 'any.Class') SELECT 1",
    "another file system without checks": "SET spark.sql.analyzer.singlePassResolver.runExtendedResolutionChecks=false;"
    " SET spark.sql.analyzer.singlePassResolver.enabled=true; SELECT * FROM text.`{token}` WITH"
    " ('fs.file.impl'='org.apache.hadoop.fs.RawLocalFileSystem','fs.file.impl.disable.cache'='true')",
    "an object of Java": "SELECT * FROM parquet.`{data}` WITH ('parquet.private.read.filter.predicate'='rO0AB')",
    "other secrets": "SET spark.sql.legacy.setCommandRejectsSparkCoreConfs=false; SET spark.redaction.regex=^$;"
    " SET spark.hadoop.planted.secret.key",
    "a secret in another setting": "SET spark.sql.variable.substitute=false;"
    " SET spark.sql.columnNameOfCorruptRecord=${{spark.hadoop.planted.secret.key}}; SELECT 1",
    "a default database": "SET spark.sql.sources.default=jdbc;"
    " CREATE TABLE t OPTIONS (url 'jdbc:derby:memory:x;create=true', dbtable 'x')",
    "a class of a codec": "SELECT from_csv('1', 'a INT', map('compression', 'java.util.ArrayList'))",
    "a database elsewhere": "CREATE DATABASE d LOCATION 'http://h/x'",
    "writing among the tokens": "INSERT OVERWRITE DIRECTORY '{tokens}' USING parquet SELECT 1",
}


@pytest.mark.parametrize("text", SQL.values(), ids=SQL)
def test_sql_is_refused(jailed, text):
    refused(jailed, outcome(jailed, lambda client: client.sql(text.format(**jailed.names()))))


PROGRAM = "SELECT TRANSFORM(id) USING 'env' AS (l STRING) FROM range(1)"
PROGRAMS = {
    "a common expression": f"WITH w AS ({PROGRAM}) SELECT * FROM w",
    "a subquery": f"SELECT ({PROGRAM})",
    "a condition": f"SELECT * FROM range(1) WHERE EXISTS ({PROGRAM})",
    "a table": f"CREATE TABLE stolen USING parquet AS {PROGRAM}",
    "rows of a table": f"CREATE TABLE lines (l STRING) USING parquet; INSERT INTO lines {PROGRAM}",
    "a view": f"CREATE VIEW listed AS {PROGRAM}; SELECT * FROM listed",
    "a temporary view": f"CREATE TEMPORARY VIEW listed AS {PROGRAM}; SELECT * FROM listed",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_below_another_statement_is_refused(jailed, text):
    shown = outcome(jailed, lambda client: client.sql(text))
    refused(jailed, shown)
    assert "--allow transform" in shown


QUIET = {
    "an entity": """SELECT xpath_string('<!DOCTYPE a [<!ENTITY e SYSTEM "file://{token}">]><a>&e;</a>', 'a')""",
    "a secret setting that is shown": "SET spark.hadoop.planted.secret.key",
    "all settings": "SET -v",
    "files that were added": "LIST FILES",
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_sql_shows_no_secret(jailed, text):
    assert jailed.planted.seen(outcome(jailed, lambda client: client.sql(text.format(**jailed.names())))) == []


def test_what_is_open_is_read_and_written(jailed):
    """Or all the others would be refused for another reason."""
    views = {"v": View(f"{jailed.data}/in/plain.txt", "text")}
    assert "gave [{'value': 'plain'}]" in outcome(jailed, lambda client: client.sql("SELECT * FROM v", views=views))
    with jailed.client("bob") as client:
        client.sql("CREATE TABLE own USING parquet AS SELECT 1 AS a").wait()
        assert client.sql("SELECT * FROM own").to_arrow().to_pylist() == [{"a": 1}]
        client.sql("SELECT 1 AS a", output=f"{jailed.data}/out").wait()


def test_a_view_is_refused(jailed):
    for path in ("{tokens}", "{data}/in/sub/link.txt", "{exchange}", "/proc/self"):
        views = {"v": View(path.format(**jailed.names()), "text")}
        refused(jailed, outcome(jailed, lambda client, views=views: client.sql("SELECT * FROM v", views=views)))


def test_an_output_is_refused(jailed):
    for path in ("{tokens}", "{exchange}/x", "{state_dir}", "{data}"):
        to = path.format(**jailed.names())
        refused(jailed, outcome(jailed, lambda c, to=to: c.sql("SELECT 1", output=to, mode="overwrite")))


def test_a_client_of_spark_connect_is_refused(jailed):
    _check_refusals(jailed, connect_outcomes(jailed))


def _check_refusals(jailed: Jail, shown: dict[str, str]) -> None:
    assert {name for name, text in shown.items() if jailed.planted.seen(text)} == set()
    assert "plain" in shown.pop("what is open")
    assert "Row(id=2)" in shown.pop("a checkpoint of its own")
    for name in ("look at a secret setting", "list settings"):
        assert shown.pop(name).startswith("gave")
    assert len(shown) > 14
    elsewise = {name: text for name, text in shown.items() if not any(words in text for words in REFUSALS)}
    assert set(elsewise) == {"a Java function"}
    assert "CANNOT_LOAD_FUNCTION_CLASS" in elsewise["a Java function"] or "UDF" in elsewise["a Java function"]


# ---------------------------------------------------------------- Python


READ = """
def reads(path):
    try:
        with open(path, "rb") as file:
            if path.endswith("/mem"):
                file.seek(int(open(path[:-3] + "maps").read().split("-")[0], 16))
            return repr(file.read(1 << 20))
    except OSError as error:
        return f"refused {error}"
"""


def python(jailed: Jail, tmp_path, body: str, **arguments: str) -> str:
    source = tmp_path / "way.py"
    source.write_text(READ + body)
    return outcome(jailed, lambda client: client.python(f"{source}:way", args=arguments))


UDF = """
def way(spark, path):
    from pyspark.sql.functions import lit, udf

    return spark.range(1).select(udf(reads)(lit(path)).alias("read"))
"""
PLANNING = """
def way(spark, path):
    return spark.createDataFrame([(reads(path),)], "read STRING")
"""


@pytest.mark.parametrize("body", [UDF, PLANNING], ids=["a UDF", "a planning function"])
@pytest.mark.parametrize("file", ["environ", "maps", "mem"])
@pytest.mark.parametrize("whose", ["scheduler", "agent"])
def test_python_reads_neither_environment_nor_memory_of_a_scheduler_or_an_agent(jailed, tmp_path, body, file, whose):
    shown = python(jailed, tmp_path, body, path=f"/proc/{jailed.names()[whose]}/{file}")
    assert "refused [Errno 13] Permission denied" in shown


@pytest.mark.parametrize("body", [UDF, PLANNING], ids=["a UDF", "a planning function"])
def test_python_inherits_no_variable_of_ours(jailed, tmp_path, body):
    shown = python(jailed, tmp_path, body, path="/proc/self/environ")
    assert "gave" in shown
    assert jailed.planted.seen(shown) == []


def test_a_planning_function_runs_no_program_of_sql(jailed, tmp_path):
    shown = python(jailed, tmp_path, f'\ndef way(spark):\n    return spark.sql("{PROGRAM}")\n')
    refused(jailed, shown)
    assert "--allow transform" in shown


@pytest.mark.parametrize("what", ["token", "result"])
def test_what_docs_list_is_what_python_of_the_same_user_reads(jailed, tmp_path, what):
    """It is no promise: docs/security.md says so, and this shows that it says so for a reason."""
    shown = python(jailed, tmp_path, UDF, path=jailed.names()[what])
    assert "gave" in shown
    assert "refused" not in shown


# ---------------------------------------------------------------- programs


@contextmanager
def program_that_looks(jailed: Jail, tmp_path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what a program has found, and its process and socket; it waits until the end."""
    word = tmp_path / "end"
    with jailed.client("bob") as client:
        names = json.dumps({**jailed.names(), "host": str(jailed.host())})
        program = client.run(Path(__file__).with_name("program_escapes.py"), args=[names, str(word)])
        shown = ""

        def has_looked() -> list[str]:
            nonlocal shown
            shown = b"".join(each.text for each in program.output()).decode()
            assert not program.info().ended, shown
            return re.findall(r"^pid (\d+) socket (\S+)$", shown, re.MULTILINE)

        ((pid, socket),) = until(has_looked, lambda: f"what the program has found:\n{shown}")
        try:
            yield shown, {"pid": pid, "socket": socket}
        finally:
            word.touch()
        assert program.wait(HANGS_S) == 0


BESIDE = """
def way(spark, pid, socket):
    from pyspark.sql.functions import lit, udf

    def asked(pid, socket):
        import grpc
        from pyspark.sql.connect.proto import ConfigRequest, ConfigResponse

        channel = grpc.insecure_channel(f"unix:{socket}")
        request = ConfigRequest(session_id="00112233-4455-6677-8899-aabbccddeeff")
        request.user_context.user_id = "bob"
        request.operation.get_all.SetInParent()
        method = "/spark.connect.SparkConnectService/Config"
        call = channel.unary_unary(method, ConfigRequest.SerializeToString, ConfigResponse.FromString)
        try:
            return f"answered {call(request, timeout=20)}"
        except grpc.RpcError as error:
            found = [reads(f"/proc/{pid}/{what}") for what in ("environ", "maps", "mem")]
            return f"{error.code().name} {error.details()} {found}"

    return spark.range(1).select(udf(asked)(lit(pid), lit(socket)).alias("read"))
"""


def test_a_program_finds_no_secret_and_nobody_calls_in_its_name(jailed, tmp_path):
    with program_that_looks(jailed, tmp_path) as (shown, own):
        assert jailed.planted.seen(shown) == []
        found = json.loads(shown.splitlines()[0])
        assert len(found) == 19
        refusals = {name for name, text in found.items() if text.startswith("raised")}
        assert refusals == {name for name in found if name.endswith(("scheduler", "agent", "host"))}
        beside = python(jailed, tmp_path, BESIDE, **own)
        assert "PERMISSION_DENIED only the process of the program calls by this socket" in beside
        assert beside.count("refused [Errno 13] Permission denied") == 3


def test_a_program_reads_no_more_by_spark_than_any_client(jailed):
    with jailed.client("bob") as client:
        path = Path(__file__).with_name("connect_escapes.py")
        program = client.run(path, args=[jailed.address, "none", json.dumps(jailed.names())])
        assert program.wait(HANGS_S) == 0
        shown = json.loads(b"".join(e.text for e in program.output() if not e.is_error).decode().splitlines()[-1])
    _check_refusals(jailed, shown)
