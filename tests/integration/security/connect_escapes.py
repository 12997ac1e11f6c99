"""Ways in which a client of Spark Connect tries to read secrets; prints what each has shown, as JSON."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.connect import proto as pb
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL, DropTempView, LogicalPlan

Ways = dict[str, Callable[[], object]]


class Encoded(LogicalPlan):
    """A relation that PySpark does not make itself."""

    def __init__(self, relation: pb.Relation) -> None:
        super().__init__(None)
        self._relation = relation

    def plan(self, session: object) -> pb.Relation:  # noqa: ARG002 - PySpark's names
        return self._relation


def with_option(spark: SparkSession, path: str, name: str, value: str) -> list:
    return spark.read.option(name, value).text(path).collect()


def hidden(spark: SparkSession, text: str) -> DataFrame:
    """Return a DataFrame of a statement: PySpark would send that by itself."""
    return DataFrame(SQL(text), spark)


def catalog_call(spark: SparkSession) -> DataFrame:
    return DataFrame(DropTempView("v"), spark)


def transformed(spark: SparkSession) -> DataFrame:
    relation = pb.Relation()
    relation.ml_relation.transform.transformer.name = "org.apache.spark.ml.feature.SQLTransformer"
    relation.ml_relation.transform.input.range.end = 1
    return DataFrame(Encoded(relation), spark)


def made_by_hand(spark: SparkSession, change: Callable[[pb.Expression], None]) -> DataFrame:
    """Return a DataFrame of an expression that PySpark does not send: *change* makes it."""
    relation = pb.Relation()
    relation.project.input.range.end = 1
    relation.project.input.range.step = 1
    change(relation.project.expressions.add())
    return DataFrame(Encoded(relation), spark)


def of_plugin(spark: SparkSession) -> DataFrame:
    relation = pb.Relation()
    relation.extension.type_url = "type.googleapis.com/any.Relation"
    return DataFrame(Encoded(relation), spark)


def compiled(expression: pb.Expression) -> None:
    function = expression.common_inline_user_defined_function
    function.function_name, function.scalar_scala_udf.payload = "f", b"\xac\xed\x00\x05"


def of_class(expression: pb.Expression) -> None:
    expression.cast.expr.literal.integer = 1
    expression.cast.type.udt.type, expression.cast.type.udt.jvm_class = "udt", "org.apache.spark.util.Utils"


def of_extension(expression: pb.Expression) -> None:
    expression.extension.type_url = "type.googleapis.com/any.Expression"


def to_files(spark: SparkSession, names: dict[str, str]) -> Ways:
    """Ways to read and write files."""
    return {
        "what is open": lambda: spark.read.text(f"{names['data']}/in/plain.txt").collect(),
        "a checkpoint of its own": lambda: spark.range(3).checkpoint().collect(),
        "read a file": lambda: spark.read.text(names["token"]).collect(),
        "read through a link": lambda: spark.read.text(f"{names['data']}/in/sub/link.txt").collect(),
        "infer a header": lambda: spark.read.option("header", True).csv(f"{names['data']}/in/sub/link.txt").columns,
        "read processes": lambda: spark.read.format("binaryFile").load("/proc/self/environ").collect(),
        "replace the file system": lambda: with_option(
            spark, names["token"], "fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem"
        ),
        "another session's rows": lambda: spark.read.parquet(f"{names['exchange']}/.checkpoints").collect(),
        "a result": lambda: spark.read.format("binaryFile").load(names["result"]).collect(),
        "a codec": lambda: spark.read.option("compression", "java.util.ArrayList").csv(f"{names['data']}/in").collect(),
        "rows of text with a codec": lambda: (
            spark.read.option("compression", "java.util.ArrayList")
            .csv(spark.createDataFrame([("1",)], "value STRING"))
            .collect()
        ),
        "write among the tokens": lambda: spark.range(1).write.mode("overwrite").parquet(names["tokens"]),
    }


def by_settings(spark: SparkSession) -> Ways:
    """Ways to set, and to look at, what is the executor's."""
    return {
        "set the file system": lambda: spark.conf.set("fs.file.impl.disable.cache", "true"),
        "set a catalog": lambda: spark.conf.set("spark.sql.catalog.x", "any.Class"),
        "set from the environment": lambda: spark.conf.set("spark.sql.defaultCatalog", "${env:ONAGER_PLANTED}"),
        "look at a secret setting": lambda: spark.conf.get("spark.hadoop.planted.secret.key"),
        "list settings": lambda: [row.asDict() for row in spark.sql("SET").collect()],
        "a single-pass analyzer": lambda: spark.conf.set("spark.sql.analyzer.singlePassResolver.enabled", "true"),
        "a setting's value": lambda: spark.conf.set(
            "spark.sql.columnNameOfCorruptRecord", "${spark.hadoop.planted.secret.key}"
        ),
        "a filter": lambda: spark.conf.set("parquet.private.read.filter.predicate", "rO0AB"),
    }


def by_sources_and_statements(spark: SparkSession, names: dict[str, str], link: Path) -> Ways:
    """Ways through data sources, tables, functions and programs."""
    return {
        "another data source": lambda: (
            spark.read.format("jdbc").option("url", "jdbc:derby:memory:x;create=true").load()
        ),
        "a table over a file": lambda: spark.catalog.createTable("stolen", path=names["token"], source="text"),
        "a Java function": lambda: spark.udf.registerJavaFunction("f", "org.apache.spark.util.Utils"),
        "a database over partitions": lambda: (
            spark.read.jdbc(f"jdbc:derby:{link}-db;create=true", "SYS.SYSTABLES", predicates=["1=1"]).schema
        ),
        "a jar": lambda: spark.sql(f"ADD JAR '{link}.jar'").collect(),
        "a program": lambda: spark.sql(
            f"SELECT TRANSFORM(id) USING 'cat {names['token']}' AS (l STRING) FROM range(1)"
        ).collect(),
        "a program in a text": lambda: spark.sql(
            """EXECUTE IMMEDIATE "SELECT TRANSFORM(id) USING 'env' AS (l STRING) FROM range(1)" """
        ).collect(),
    }


def by_hidden_statements(spark: SparkSession, names: dict[str, str], link: Path) -> Ways:
    """Ways in which a statement is part of something else."""
    return {
        "a jar in a relation": lambda: hidden(spark, f"ADD JAR '{link}.jar'").na.fill(0).schema,
        "a file in a relation": lambda: hidden(spark, f"ADD FILE '{names['token']}'").na.drop().collect(),
        "an output in a relation": lambda: hidden(
            spark, f"INSERT OVERWRITE DIRECTORY '{names['data']}/o' USING csv SELECT 1"
        ).cov("a", "b"),
        "a command in a view": lambda: hidden(spark, "CREATE TABLE stolen (a INT)").na.fill(0).createTempView("v"),
        "a command in what is shown": lambda: hidden(spark, "DROP TABLE IF EXISTS own").na.fill(0).show(),
        "a call of the catalog in a relation": lambda: catalog_call(spark).na.fill(0).schema,
    }


def by_messages(spark: SparkSession) -> Ways:
    """Ways that PySpark does not send by itself."""
    return {
        "a transformation": lambda: transformed(spark).schema,
        "a relation of a plugin": lambda: of_plugin(spark).schema,
        "an expression of a plugin": lambda: made_by_hand(spark, of_extension).schema,
        "a compiled function": lambda: made_by_hand(spark, compiled).schema,
        "a type of any class": lambda: made_by_hand(spark, of_class).schema,
    }


def main() -> None:
    address, token, names = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    port = address.rpartition(":")[2]
    # By this name PySpark sends a token without TLS.
    spark = SparkSession.builder.remote(f"sc://localhost:{port}/;token={token}").getOrCreate()
    link = Path(tempfile.mkdtemp()) / "sub"
    ways = to_files(spark, names) | by_settings(spark) | by_sources_and_statements(spark, names, link)
    ways |= by_hidden_statements(spark, names, link) | by_messages(spark)
    found = {}
    for name, way in ways.items():
        try:
            found[name] = f"gave {way()}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            found[name] = f"raised {type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
