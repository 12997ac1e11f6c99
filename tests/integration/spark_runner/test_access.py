"""What jobs may read and use in an executor's Spark: formats, file systems, files by their real paths, settings."""

import os
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

from onager.executor.spark.kernel.access import refused_setting
from onager.executor.spark.kernel.classes import GUARDED_FILES
from onager.executor.spark.kernel.connect import connect_settings

SECRET = "planted-0123456789"
REVIEWED = Path(__file__).with_name("reviewed_settings.txt")
READS_ANEW = "org.apache.hadoop.yarn.conf.YarnConfiguration"
"""A class that has Hadoop's settings read anew when it is loaded; no file system of Spark's own package does."""
REPLACING = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}


@pytest.fixture
def token(private_dir: Path) -> Path:
    file = private_dir / "secret"
    file.write_text(SECRET)
    return file


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


def refusal(act) -> str:
    with pytest.raises(
        Exception, match=r"(?s)may use|is refused|cannot be (read|used)|which no job reads|a job cannot set"
    ) as raised:
        act()
    assert SECRET not in str(raised.value)
    return str(raised.value)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize(
    "name",
    [
        *("jdbc", "JDBC", "org.apache.spark.sql.jdbc", "libsvm", "image", "rate", "socket", "console"),
        "org.apache.spark.sql.execution.datasources.jdbc.JdbcRelationProvider",
    ],
)
def test_a_data_source_that_is_not_named_is_refused_before_it_is_made(session, name, tmp_path):
    url = f"jdbc:derby:{tmp_path}/made;create=true"
    options = f"OPTIONS (url '{url}', dbtable 'x')"
    for act in (
        lambda: session.read.format(name).option("url", url).option("dbtable", "x").load(),
        lambda: session.sql(f"CREATE TEMPORARY VIEW v USING {name} {options}"),
        lambda: session.sql(f"CREATE TABLE t_{tmp_path.name.replace('-', '_')} USING {name} {options}"),
    ):
        assert f"start executors with --allow {name}" in refusal(act)
    assert not (tmp_path / "made").exists()


def test_formats_of_files_are_read_by_their_names_and_classes(session, tmp_path):
    for name in ("parquet", "orc", "csv", "json", "xml"):
        options = {"rowTag": "row", "header": "true"}
        session.range(3).write.format(name).options(**options).save(str(tmp_path / name))
        assert session.read.format(name.upper()).options(**options).load(str(tmp_path / name)).count() == 3
    (tmp_path / "text").write_text("a\n")
    for name in ("text", "binaryFile", "org.apache.spark.sql.execution.datasources.text.TextFileFormat"):
        assert session.read.format(name).load(str(tmp_path / "text")).count() == 1
    session.range(3).write.format("noop").mode("overwrite").save()


def test_data_sources_in_python_and_their_options_are_used(session):
    class Reader(DataSourceReader):
        def read(self, partition):  # noqa: ARG002 - Spark's names
            yield (1,)

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers_of_ours"

        def schema(self):
            return "a INT"

        def reader(self, schema):  # noqa: ARG002
            return Reader()

    session.dataSource.register(Numbers)
    assert session.read.format("numbers_of_ours").option("fs.any.name", "x").load().collect() == [(1,)]


def test_what_is_no_data_source_is_reported_by_spark(session):
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        session.read.format("no_such_source").load("/tmp/none")


# ---------------------------------------------------------------- file systems and links


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1/x", "har://file-127.0.0.1/x.har", "ftp://h/x", "webhdfs://h/x"])
def test_a_file_system_that_is_not_named_is_refused(session, uri):
    scheme = uri.partition(":")[0]
    assert f"start executors with --allow {scheme}:" in refusal(lambda: session.read.text(uri).collect())
    path = session._jvm.org.apache.hadoop.fs.Path(uri)
    conf = session.sparkContext._jsc.hadoopConfiguration()
    assert f"--allow {scheme}:" in refusal(lambda: path.getFileSystem(conf))


def test_a_file_system_that_stands_for_local_files_opens_no_private_one(session, token):
    """It is allowed here, so the files themselves are guarded."""
    reader = session.read.option("fs.viewfs.mounttable.m.link./x", f"file://{token.parent}")
    assert "where Onager keeps files of its own" in refusal(lambda: reader.text("viewfs://m/x/secret").collect())


def test_a_link_is_read_as_what_it_leads_to(session, token, tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.txt").symlink_to(token)
    (tmp_path / "dir").symlink_to(token.parent)
    (tmp_path / "plain.txt").write_text("plain\n")
    (tmp_path / "in" / "sub" / "b.txt").symlink_to(tmp_path / "plain.txt")
    for act in (
        lambda: session.read.option("recursiveFileLookup", "true").text(str(tmp_path / "in")).collect(),
        lambda: session.read.text(str(tmp_path / "in" / "*")).collect(),
        lambda: session.read.option("header", "true").csv(str(tmp_path / "in" / "sub" / "a.txt")).columns,
        lambda: session.read.text(str(tmp_path / "dir")).collect(),
        lambda: session.read.text(str(tmp_path / "di*" / "secret")).collect(),
    ):
        assert "where Onager keeps files of its own" in refusal(act)
    assert session.read.text(str(tmp_path / "in" / "sub" / "b.txt")).collect() == [("plain",)]


@pytest.mark.parametrize(
    "path",
    ["/proc/self/environ", "/proc/{pid}/environ", "file:///proc/self/environ", "file:/proc/1/cmdline", "/dev/zero"],
)
def test_the_system_is_not_read(session, path):
    path = path.format(pid=os.getpid())
    assert "which is the system's" in refusal(lambda: session.read.text(path).collect())
    assert "which is the system's" in refusal(lambda: session.read.format("binaryFile").load(path).collect())


def test_a_location_is_a_place_like_any_other(session, token):
    text = f"CREATE TABLE secrets_{token.parent.name} (line STRING) USING text LOCATION '{token.parent}'"
    assert "where Onager keeps files of its own" in refusal(lambda: session.sql(text))


# ---------------------------------------------------------------- programs, jars, variables, XML


def test_no_query_runs_a_program_or_loads_a_jar(session, token):
    text = f"SELECT TRANSFORM(id) USING 'cat {token}' AS (l STRING) FROM range(1)"
    for statement in (text, f'EXECUTE IMMEDIATE "{text}"', f"BEGIN {text}; END"):
        error = refusal(lambda statement=statement: session.sql(statement).collect())
        assert "start executors with --allow transform" in error
    assert "is refused" in refusal(
        lambda: session.sql("CREATE TEMPORARY FUNCTION f AS 'a.B' USING JAR '/tmp/none.jar'")
    )


@pytest.mark.parametrize("name", ["env:PATH", "system:java.class.path"])
def test_variables_of_sql_are_not_of_the_environment(session, name):
    assert "which no job reads" in refusal(lambda: session.sql(f"SELECT '${{{name}}}'").collect())
    session.sql("SET variable = 3")
    assert session.sql("SELECT ${variable} + ${hivevar:variable}").collect() == [(6,)]


def test_xml_brings_in_no_other_file(session, token, tmp_path):
    (tmp_path / "rows.xml").write_text("<rows><row><a>1</a></row></rows>")
    (tmp_path / "schema.xsd").write_text(
        f'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY e SYSTEM "file://{token}">]>'
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">&e;</xs:schema>'
    )
    rows = session.read.format("xml").option("rowTag", "row")
    for schema in (token, f"file://{token}", "http://127.0.0.1:1/x"):  # it is named by an option alone
        for act in (
            lambda schema=schema: rows.option("rowValidationXSDPath", str(schema)).load(f"{tmp_path}/rows.xml"),
            lambda schema=schema: session.sql(f"SELECT from_xml('', 'a INT', map('rowValidationXSDPath', '{schema}'))"),
        ):
            assert " cannot be read: " in refusal(act)
    reader = rows.option("rowValidationXSDPath", f"{tmp_path}/schema.xsd")
    entity = f'<!DOCTYPE a [<!ENTITY e SYSTEM "file://{token}">]><a>&e;</a>'
    for act in (
        lambda: reader.load(f"{tmp_path}/rows.xml").collect(),
        lambda: session.sql(f"SELECT xpath_string('{entity}', 'a')").collect(),
        lambda: session.sql(f"SELECT from_xml('{entity}', 'a STRING')").collect(),
    ):
        try:
            shown = str(act())
        except Exception as error:  # noqa: BLE001 - whatever it is
            shown = str(error)
        assert SECRET not in shown


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem"),
        ("fs.file.impl.disable.cache", "true"),
        ("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem"),
        ("spark.hadoop.fs.s3a.access.key", "k"),
        ("spark.hadoop.fs.viewfs.impl", "any.Class"),
        ("fs.defaultFS", "viewfs://m/"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "localjceks://file/x"),
        ("spark.hadoop.io.compression.codecs", "any.Class"),
        ("parquet.crypto.factory.class", "any.Class"),
        ("spark.sql.catalog.x", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"),
        ("spark.sql.catalog.x.url", "jdbc:derby:memory:x"),
        ("spark.sql.catalog.spark_catalog", "any.Class"),
        ("spark.sql.sources.commitProtocolClass", "any.Class"),
        ("spark.sql.adaptive.customCostEvaluatorClass", "any.Class"),
        ("spark.sql.extendedExplainProviders", "any.Class"),
        ("spark.sql.execution.pyspark.python", "/bin/sh"),
        ("spark.sql.defaultCatalog", "${env:PATH}"),
        ("spark.sql.session.timeZone", "${system:user.home}"),
        ("spark.sql.columnNameOfCorruptRecord", "${spark.hadoop.planted.secret.key}"),
        ("spark.sql.analyzer.singlePassResolver.enabled", "true"),
        ("spark.sql.analyzer.singlePassResolver.runExtendedResolutionChecks", "false"),
        ("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false"),
        ("spark.sql.redaction.options.regex", "^$"),
        ("spark.redaction.regex", "^$"),
        ("spark.onager.programFiles", "x"),
        ("spark.sql.udt.allowedDynamicUDTClasses", "any.Class"),
        ("spark.sql.sources.default", "jdbc"),
        ("spark.sql.sources.default", "any.Class"),
        ("spark.hadoop.parquet.private.read.filter.predicate", "rO0AB"),
        ("parquet.private.read.filter.predicate.human.readable", "x"),
        ("parquet.read.filter", "any.Class"),
        ("parquet.read.support.class", "any.Class"),
        ("orc.kryo.sarg", "AQ"),
        ("orc.key.provider", "hadoop"),
        ("orc.compress", "any.Class"),
        ("spark.hadoop.mapreduce.output.fileoutputformat.compress.codec", "any.Class"),
        ("spark.hadoop.mapreduce.input.fileinputformat.split.minsize", "${planted.secret.key}"),
        ("spark.hadoop.fs.viewfs.anything", "any.Class"),
    ],
)
def test_settings_that_load_classes_change_file_systems_or_read_the_environment_are_executors(session, key, value):
    assert refused_setting(session, key, value) is not None
    if "${" not in value:  # else the parser refuses it
        assert f"a job cannot set {key}" in refusal(lambda: session.sql(f"SET {key}={value}"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "3"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.orc.impl", "native"),
        ("spark.hadoop.parquet.block.size", "1048576"),
        ("spark.hadoop.mapreduce.input.fileinputformat.split.maxsize", "1"),
        ("spark.hadoop.fs.viewfs.mounttable.m.link./x", "file:///tmp"),
        ("hive.exec.dynamic.partition", "true"),
        ("hive.exec.dynamic.partition.mode", "nonstrict"),
        ("mapred.reduce.tasks", "8"),
        ("hive.exec.parallel", "true"),
        ("mapreduce.job.queuename", "daily"),
        ("spark.hadoop.fs.viewfs.secret", f"a{'.b' * 2_000}~cD.Ef=="),
        ("spark.sql.legacy.parquet.datetimeRebaseModeInRead", "CORRECTED"),
        ("pandas_on_Spark.compute.max_rows", "1000"),
        ("parquet.bloom.filter.enabled#provider", "true"),
        ("orc.stripe.size", "1048576"),
        ("textinputformat.record.delimiter", ";"),
        ("spark.sql.artifact.isolation.alwaysApplyClassloader", "true"),
        ("spark.sql.legacy.raiseErrorWithoutErrorClass", "true"),
        ("spark.sql.legacy.blockCreateTempTableUsingProvider", "true"),
        ("spark.sql.sources.default", "orc"),
        ("spark.sql.iceberg.vectorization.enabled", "true"),
        ("spark.connect.session.planCompression.threshold", "-1"),
        ("spark.acme.report.day", "2026-03-01"),
        ("onager.fusion.maxBytes", "0"),
        ("day", "2026-03-01"),
    ],
)
def test_other_settings_are_jobs(session, key, value):
    assert refused_setting(session, key, value) is None


def test_every_setting_that_jobs_may_set_has_been_reviewed(session):
    """A newer Spark may have more: each is looked at, and listed beside this test, before a job may set it."""
    known = {setting["key"]: setting["value"] for setting in connect_settings(session)}
    free = {
        key
        for key, value in known.items()
        if session.conf.isModifiable(key) and refused_setting(session, key, value or "1") is None
    }
    assert free == set(REVIEWED.read_text().split())


def test_files_are_guarded_whatever_the_analyzer_checks(session, token):
    """Settings and options that are there all the same replace no file system."""
    conf = session._jsparkSession.sessionState().conf()
    for key, value in REPLACING.items():
        conf.setConfString(key, value)
    conf.setConfString("spark.sql.analyzer.singlePassResolver.runExtendedResolutionChecks", "false")
    conf.setConfString("spark.sql.analyzer.singlePassResolver.enabled", "true")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in REPLACING.items())
    for act in (
        lambda: session.sql(f"SELECT * FROM text.`{token}` WITH ({options})").collect(),
        lambda: session.sql(f"SELECT * FROM text.`{token}`").collect(),
    ):
        with pytest.raises(Exception, match="text") as raised:
            act()
        assert SECRET not in str(raised.value)
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    assert hadoop.get("fs.file.impl") == GUARDED_FILES
    local = session._jvm.org.apache.hadoop.fs.Path(f"file://{token}")
    assert "where Onager keeps files of its own" in refusal(lambda: local.getFileSystem(hadoop).open(local))


def test_a_directory_that_holds_a_private_one_is_neither_moved_nor_removed(session, token):
    above = session._jvm.org.apache.hadoop.fs.Path(f"file://{token.parent.parent}")
    files = above.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    elsewhere = session._jvm.org.apache.hadoop.fs.Path(f"file://{token.parent.parent}-moved")
    for act in (lambda: files.delete(above, True), lambda: files.rename(above, elsewhere)):
        assert "it holds" in refusal(act)
    assert token.read_text() == SECRET


def array_of(path):
    """Return a Java array of *path* alone."""
    gateway = SparkContext._gateway
    made = gateway.new_array(gateway.jvm.org.apache.hadoop.fs.Path, 1)
    made[0] = path
    return made


CHANGES = {
    "open": lambda files, path, _: files.open(path, 4096),
    "list": lambda files, path, _: files.listStatus(path),
    "create": lambda files, path, _: files.create(path, True),
    "append": lambda files, path, _: files.append(path, 4096, None),
    "truncate": lambda files, path, _: files.truncate(path, 0),
    "delete": lambda files, path, _: files.delete(path, False),
    "make directories": lambda files, path, _: files.mkdirs(path),
    "rename": lambda files, path, other: files.rename(path, other),
    "rename to": lambda files, path, other: files.rename(other, path),
    "concatenate": lambda files, path, other: files.concat(other, array_of(path)),
    "concatenate to": lambda files, path, other: files.concat(path, array_of(other)),
    "link to": lambda files, path, other: files.createSymlink(path, other, False),
    "link from": lambda files, path, other: files.createSymlink(other, path, False),
    "set times": lambda files, path, _: files.setTimes(path, 0, 0),
    "set the owner": lambda files, path, _: files.setOwner(path, "nobody", "nobody"),
    "set rights": lambda files, path, other: files.setPermission(path, files.getFileStatus(other).getPermission()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_private_file_is_neither_opened_nor_changed_in_any_way(session, token, tmp_path, change):
    jvm = session._jvm
    (tmp_path / "plain").touch()
    path, other = (jvm.org.apache.hadoop.fs.Path(f"file://{file}") for file in (token, tmp_path / "plain"))
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()).getRawFileSystem()
    before = token.stat()
    assert "where Onager keeps files of its own" in refusal(lambda: CHANGES[change](files, path, other))
    after = token.stat()
    assert (before.st_mtime_ns, before.st_mode, before.st_uid) == (after.st_mtime_ns, after.st_mode, after.st_uid)


def test_a_secret_setting_is_not_shown(session):
    conf = session._jsparkSession.sessionState().conf()
    conf.setConfString("spark.redaction.regex", "^$")
    for text in ("SET spark.hadoop.planted.secret.key", "SET", "SET -v"):
        try:
            shown = str(session.sql(text).collect())
        except Exception as error:  # noqa: BLE001 - whatever it is
            shown = str(error)
        assert "a-planted-secret" not in shown


def test_a_table_without_a_format_is_of_the_default_one_and_checked_like_it(session, tmp_path):
    session._jsparkSession.sessionState().conf().setConfString("spark.sql.sources.default", "jdbc")
    name = f"t_{tmp_path.name.replace('-', '_')}"
    text = f"CREATE TABLE {name} OPTIONS (url 'jdbc:derby:{tmp_path}/made;create=true', dbtable 'x')"
    assert "start executors with --allow jdbc" in refusal(lambda: session.sql(text))
    assert not (tmp_path / "made").exists()


def test_a_relation_of_a_database_is_refused_without_its_format(session, tmp_path):
    url = f"jdbc:derby:{tmp_path}/made;create=true"
    act = lambda: session.read.jdbc(url, "SYS.SYSTABLES", predicates=["1=1"])  # noqa: E731
    assert "start executors with --allow jdbc" in refusal(act)


@pytest.mark.parametrize("name", ["csv", "json", "text"])
def test_a_codec_is_named_by_its_short_name(session, name, tmp_path):
    (tmp_path / "a").write_text("1\n")
    reader = session.read.format(name).option("compression", "java.util.ArrayList")
    assert "takes the short name of a codec" in refusal(lambda: reader.load(str(tmp_path / "a")).collect())
    writer = session.range(1).selectExpr("string(id)").write.format(name).option("compression", "java.util.ArrayList")
    assert "takes the short name of a codec" in refusal(lambda: writer.save(str(tmp_path / "out")))
    session.range(1).selectExpr("string(id)").write.format(name).option("compression", "gzip").save(str(tmp_path / "z"))


@pytest.mark.parametrize(
    "call",
    [
        "from_csv('1', 'a INT', map('compression', concat('java.util.', 'ArrayList')))",
        "schema_of_json('{}', map('compression', 'java.util.ArrayList'))",
        "to_xml(struct(1 AS a), map('compression', 'java.util.ArrayList'))",
    ],
)
def test_a_function_takes_no_class_in_its_options(session, call):
    assert "takes the short name of a codec" in refusal(lambda: session.sql(f"SELECT {call}").collect())


@pytest.mark.parametrize("key", ["elt(1, 'compression')", "CAST('compression' AS STRING COLLATE UTF8_LCASE)"])
def test_options_of_functions_are_looked_at_as_spark_computes_them(session, key):
    assert "takes the short name" in refusal(
        lambda: session.sql(f"SELECT from_csv('1', 'a INT', map({key}, 'any.Class'))")
    )


def test_data_of_functions_are_no_options(session):
    text = "SELECT to_json(map('fs.file.impl', 'bob', 'compression', 'a.B')) AS text"
    assert session.sql(text).collect() == [('{"fs.file.impl":"bob","compression":"a.B"}',)]


def test_functions_take_other_options(session):
    text = "SELECT from_csv('1;2', 'a INT, b INT', map('sep', ';')).b, to_json(struct(1 AS a), map('pretty', 'false'))"
    assert session.sql(text).collect() == [(2, '{"a":1}')]


def test_variables_of_scripts_may_have_dots_and_reach_no_setting_of_hadoop(session):
    session.sql("SET report.day=2026-03-01")
    session.sql("SET hivevar:my.day=7")
    assert session.sql("SELECT '${report.day}', ${hivevar:my.day} + 1, '${my.day}'").collect() == [
        ("2026-03-01", 8, "7")
    ]
    assert session.sql("SET report.day").collect() == [("report.day", "2026-03-01")]
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    assert hadoop.get("report.day") is None
    assert hadoop.get("my.day") is None
    session.sql("RESET report.day")
    assert session.sql("SET report.day").collect() == [("report.day", "<undefined>")]


def test_a_database_lies_where_a_table_may(session, token):
    for place in ("http://h/x", str(token.parent)):
        refusal(lambda place=place: session.sql(f"CREATE DATABASE d_{token.parent.name} LOCATION '{place}'"))


def test_a_view_keeps_no_setting_that_a_job_cannot_make(session):
    key = "view.sqlConfig.spark.sql.analyzer.singlePassResolver.enabled"
    assert "a job cannot set" in refusal(lambda: session.sql(f"ALTER VIEW v SET TBLPROPERTIES ('{key}' = 'true')"))


@pytest.mark.parametrize(
    "option",
    [
        *("fs.file.impl", "fs.file.impl.disable.cache", "io.compression.codecs", "option.fs.s3a.impl"),
        *("parquet.private.read.filter.predicate", "parquet.read.filter", "orc.kryo.sarg"),
    ],
)
def test_options_of_files_reach_no_file_system(session, option, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    for act in (
        lambda: session.read.option(option, "true").text(str(tmp_path)),
        lambda: session.sql(f"CREATE TEMPORARY VIEW v USING text OPTIONS (path '{tmp_path}', '{option}' 'true')"),
        lambda: session.sql(f"SELECT * FROM text.`{tmp_path}` WITH ('{option}' = 'true')"),
    ):
        assert f"the option {option} is refused" in refusal(act)


def test_a_file_system_that_is_loaded_later_leaves_the_guard_in_place(session):
    """When their classes are loaded, some have all of Hadoop's settings read anew."""
    session._jvm.java.lang.Class.forName(READS_ANEW)
    hadoop = session._jsparkSession.sessionState().newHadoopConf()
    hadoop.set("fs.file.impl", REPLACING["fs.file.impl"])
    assert hadoop.get("fs.file.impl") == GUARDED_FILES


@pytest.mark.parametrize("text", ["ADD JAR '/any.jar'", "ADD FILE '/any.txt'", "ADD ARCHIVE '/any.zip'"])
def test_no_statement_loads_jars_or_files(session, text):
    assert "would be loaded into the Spark" in refusal(lambda: session.sql(text))


def test_a_secret_of_the_executors_is_no_variable(session):
    with pytest.raises(IllegalArgumentException, match="a secret of the executors"):
        session.sql("SELECT '${spark.hadoop.planted.secret.key}'").collect()
