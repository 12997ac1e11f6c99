"""Programs of PySpark, unmodified and in processes of their own, through Spark Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from onager.cli.java import find_java_home
from onager.exchange_layout import CHECKPOINTS
from tests.support.processes.cluster import Cluster
from tests.support.waiting import HANGS_S

JDBC = Path(__file__).with_name("JdbcProgram.java")
PROGRAM = Path(__file__).with_name("connect_program.py")
FOUND_IN_PLAIN_SPARK = Path(__file__).with_name("connect_program.json")
"""What `connect_program.py` has printed in plain Spark; a test in `long` runs it there again, and compares."""
SLOW = """
import sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(spark.session_id, flush=True)
spark.addTag("slow")
try:
    spark.range(2).select(F.udf(lambda x: time.sleep(100) or x, "long")("id")).collect()
except PySparkException as error:
    print(error.getCondition())
spark.clearTags()
spark.conf.set("onager.fusion.maxBytes", "0")
try:
    spark.range(4, numPartitions=2).groupBy((F.lit(1) / F.col("id")).alias("k")).count().collect()
except PySparkException as error:
    print(type(error).__name__, error.getCondition())
"""
SURVIVOR = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "5")
spark.range(150_000).withColumn("s", F.repeat(F.lit("x"), 250)).createOrReplaceTempView("v")
spark.udf.register("twice", lambda x: 2 * x, "long")
drawn = spark.range(100).select("id", F.rand().alias("r")).checkpoint()
drawn.where("id < 50").createOrReplaceTempView("half")
rows = drawn.sort("id").collect()
read, total = 0, 0
for row in spark.table("v").toLocalIterator():
    read, total = read + 1, total + row.id
    if read == 10_000:
        print("reading", flush=True)
        sys.stdin.readline()
twice = spark.sql("SELECT twice(21)").collect()[0][0]
is_kept = drawn.sort("id").collect() == rows and spark.sql("SELECT * FROM half ORDER BY id").collect() == rows[:50]
print(read, total, spark.conf.get("spark.sql.shuffle.partitions"), twice, is_kept, flush=True)
"""
REFUSED = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
checkpoint = spark.range(3).checkpoint()
asked = [
    lambda: spark.sql("CREATE GLOBAL TEMPORARY VIEW g AS SELECT 1"),
    lambda: spark.sql("EXECUTE IMMEDIATE 'SELECT 1'"),
    lambda: spark.sql("BEGIN SELECT * FROM {frame}; END", frame=spark.range(1)),
    lambda: spark.readStream.format("rate").load().writeStream.format("console").start(),
    lambda: spark.range(3).write.bucketBy(2, "id").parquet(sys.argv[2]),
    lambda: DataFrame(SQL("INSERT OVERWRITE DIRECTORY '" + sys.argv[2] + "' USING csv SELECT 1"), spark).collect(),
    lambda: DataFrame(SQL("CREATE TEMPORARY VIEW v AS SELECT 1"), spark).select("*").collect(),
    lambda: spark.read.parquet(sys.argv[3] + "/*").collect(),
]
for ask in asked:
    try:
        ask()
        print("nothing was wrong")
    except PySparkException as error:
        print(" ".join(str(error).split())[:300])
print(spark.range(3).count())
"""
FILES = """
import pathlib, sys
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as F
module, data, jar = (pathlib.Path(sys.argv[2], name) for name in ("its_module.py", "data.txt", "x.jar"))
data.write_text("data " * 20_000)  # more than one piece
jar.write_text("jar")
sessions = []
for value in (3, 5):
    module.write_text(f"VALUE = {value}")
    sessions.append(SparkSession.builder.remote(sys.argv[1]).create())
    sessions[-1].addArtifacts(str(module), pyfile=True)
    sessions[-1].addArtifacts(str(data), file=True)
def find(x):
    import its_module
    return f"{its_module.VALUE} {len(open(SparkFiles.get('data.txt')).read())}"
def found():
    for spark in sessions:
        print(*{row[0] for row in spark.range(4, numPartitions=2).select(F.udf(find)("id")).collect()}, flush=True)
found()
clone = sessions[0].cloneSession()
for add in (lambda: clone.addArtifacts(str(module), pyfile=True), lambda: clone.addArtifacts(str(jar))):
    try:
        add()
    except PySparkException as error:
        print(error.getCondition(), flush=True)
sys.stdin.readline()
found()
for spark in (clone, *sessions):
    spark.stop()
"""
INTERRUPTS = """
import sys, time
from pyspark.sql.connect.client.core import SparkConnectClient
client = SparkConnectClient(sys.argv[1])
while not (found := client.interrupt_tag("slow")):
    time.sleep(0.1)
print(*found)
"""


@pytest.fixture
def cluster(lone_cluster) -> Cluster:
    return lone_cluster


def remote(cluster: Cluster) -> str:
    return f"sc://{cluster.address}"


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )


def test_a_program_finds_what_it_finds_in_plain_spark(cluster, tmp_path):
    process = start(PROGRAM, tmp_path, remote(cluster))
    found = json.loads(process.communicate(timeout=HANGS_S)[0].splitlines()[-1])
    expected = json.loads(FOUND_IN_PLAIN_SPARK.read_text())
    assert process.returncode == 0
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == value, name


def test_sessions_results_checkpoints_and_files_outlive_the_processes_that_served_them(cluster, tmp_path):
    reading, with_files = start("-c", SURVIVOR, remote(cluster)), start("-c", FILES, remote(cluster), tmp_path)
    assert reading.stdout.readline().strip() == "reading"
    expected = ["3 100000", "5 100000"]
    first = [with_files.stdout.readline().strip() for _ in range(4)]
    assert first == [*expected, "ARTIFACT_ALREADY_EXISTS", "UNSUPPORTED_FEATURE"]
    cluster.the_executor().kill()
    cluster.scheduler.kill()
    cluster.start_scheduler()
    cluster.the_executor()
    printed = reading.communicate("go on\n", timeout=HANGS_S)[0]
    assert printed.split() == ["150000", str(sum(range(150_000))), "5", "42", "True"]
    assert (cluster.exchange_dir / CHECKPOINTS).stat().st_mode & 0o777 == 0o700
    assert with_files.communicate("go on\n", timeout=HANGS_S)[0].splitlines() == expected


def test_what_is_not_done_is_refused_by_name_and_has_no_effect(cluster, tmp_path):
    checkpoints = cluster.exchange_dir / CHECKPOINTS
    printed = (
        start("-c", REFUSED, remote(cluster), tmp_path / "out", checkpoints)
        .communicate(timeout=HANGS_S)[0]
        .splitlines()
    )
    assert not (tmp_path / "out").exists()
    words = ["global view", "IMMEDIATE", "BEGIN", "streaming", "bucketby"]
    words += ["InsertIntoDir", "CreateViewCommand", "cannot be read"]
    assert len(printed) == len(words) + 1
    for word, line in zip(words, printed, strict=False):
        assert word.lower() in line.lower().replace("_", ""), line
    assert printed[-1] == "3"


@pytest.mark.long
def test_a_jdbc_client_queries_and_changes_tables(cluster):
    jars = Path(pyspark.__file__).parent / "jars"
    java = [find_java_home() / "bin" / "java", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = [*java, "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", f"{jars}/connect-repl/*:{jars}/*"]
    done = subprocess.run(
        [*command, JDBC, remote(cluster)], capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "create false",
        "insert 0",
        "ctas false",
        "rows [1,a, 2,null]",
        "copy [23]",
        "query true [1]",
        "show [default,jdbc_copy,false, default,jdbc_sold,false]",
        "product Apache Spark Connect Server 4.3.0",
        "catalogs [spark_catalog]",
        "schemas true",
        "tables [jdbc_copy, jdbc_sold]",
        "columns [id, what]",
        "schema spark_catalog.default",
        "mistake 21S01",
        "drop falsefalse",
        "left []",
    ]


def test_an_operation_is_interrupted_by_its_tag_and_a_stage_fails_with_sparks_error(cluster):
    process = start("-c", SLOW, remote(cluster))
    session = process.stdout.readline().strip()
    other = start("-c", INTERRUPTS, f"{remote(cluster)}/;session_id={session}")
    (interrupted,) = other.communicate(timeout=HANGS_S)[0].split()
    assert process.communicate(timeout=HANGS_S)[0].split() == [
        "OPERATION_CANCELED",
        "ArithmeticException",
        "DIVIDE_BY_ZERO",
    ]
    (job,) = cluster.client.jobs(labels={"connect.op": interrupted})
    assert job.state == "cancelled"
