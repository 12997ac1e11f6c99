# ruff: noqa: ARG002, PTH109, PTH110, PTH123, T201 - these functions travel alone
"""Python jobs of the end-to-end tests; they travel as source, so each function imports what it needs."""


def gated_query(spark, text, gate, table, key):
    """The query *text*, with the scan of *table* held at *gate* until a file `open` is there."""
    import os
    import time

    from pyspark.sql.functions import udf

    def passes(_):
        while not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return True

    spark.table(f"{table}_ungated").where(udf(passes, "boolean")(key)).createOrReplaceTempView(table)
    return spark.sql(text)


def gated_range(spark, gate, partitions, held):
    """The numbers 0 to 999 in *partitions* tasks, of which number *held* waits at *gate*."""
    import os
    import time

    from pyspark.sql.functions import col, spark_partition_id, udf

    def passes(partition):
        while partition == held and not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return True

    frame = spark.range(0, 1000, 1, partitions)
    return frame.where(udf(passes, "boolean")(spark_partition_id())).select(col("id"))


def deaf(spark, gate):
    """Two tasks, each in one expression that takes minutes, where nothing looks whether it was cancelled."""
    from pyspark.sql.functions import udf

    def begins(number):
        with open(f"{gate}/begun-{number}", "w"):
            return number

    text = [f"repeat('{two}', cast(400000 + n AS int))" for two in ("ab", "ba")]
    return (
        spark.range(0, 2, 1, 2)
        .select(udf(begins, "long")("id").alias("n"))
        .selectExpr(f"levenshtein({', '.join(text)})")
    )


def raising(spark):
    """A function of the user that fails on one row."""
    from pyspark.sql.functions import udf

    def reciprocal(x):
        if x == 7:
            raise ValueError("seven is not allowed here")
        return x

    return spark.range(10).select(udf(reciprocal, "long")("id"))


def captures_broadcast(spark):
    """A user function over a broadcast variable."""
    from pyspark.sql.functions import udf

    table = spark.sparkContext.broadcast({i: i * i for i in range(10)})
    return spark.range(10).select(udf(lambda x: table.value[x], "long")("id").alias("square"))


def not_a_frame(spark):
    """A function that returns something else."""
    return 42


def writes_while_planned(spark, path):
    """A function that would write while it is planned."""
    spark.range(3).write.parquet(path)
    return spark.range(1)


def raises_while_planned(spark):
    """A function that fails before there is a query."""
    raise KeyError("no such thing in the config")


def prints_and_raises(spark):
    """A function that says something before it fails."""
    import sys

    print("reading the config")
    print("password=hunter2", file=sys.stderr)
    raise KeyError("no such thing in the config")


def prints_in_tasks(spark, gate, fails):
    """Two tasks that print; the second one waits at *gate*, and perhaps fails then."""
    import os
    import time

    from pyspark.sql.functions import spark_partition_id, udf

    def says(partition):
        print(f"task {partition} begins", flush=True)
        while partition == 1 and not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        if partition == 1 and fails:
            raise ValueError("the second task gives up")
        print(f"task {partition} ends")
        return partition

    return spark.range(0, 2, 1, 2).select(udf(says, "long")(spark_partition_id()).alias("p"))


def no_columns(spark):
    """Three rows of nothing."""
    return spark.range(3).select()


def gated_exchange(spark, gate, rows):
    """The numbers 0 to 2 * *rows*, dealt out by two tasks; the first waits at *gate* before its last row."""
    import os
    import time

    from pyspark.sql.functions import udf

    def passes(number):
        while number == rows - 1 and not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return "x" * 100  # Python hands on what it gives in buffers: much of it, so that rows flow

    frame = spark.range(0, 2 * rows, 1, 2).select("id", udf(passes, "string")("id").alias("filler"))
    return frame.repartition(3, "id").selectExpr("count(filler) AS n", "sum(id) AS s")


def where_it_runs(spark, partitions):
    """The interpreter and the parent process of each Python worker that runs a task."""
    from pyspark.sql.functions import udf

    def here(_):
        import os
        import sys

        return f"{sys.executable} {os.getpid()}"

    return spark.range(0, partitions, 1, partitions).select(udf(here, "string")("id").alias("here"))


def stops_spark(spark):
    """Three rows, by a function that ends as scripts do."""
    frame = spark.range(3)
    spark.stop()
    spark.sparkContext.stop()
    spark._jsc.stop()
    return frame


def stops_all_of_spark_once(spark, gate):
    """Seven rows, by a function that stops the Spark of every job the first time, past all that keeps it from that."""
    import os

    if not os.path.exists(f"{gate}/held-1"):
        with open(f"{gate}/held-1", "w"):
            pass
        spark._jsc.sc().stop()
    return spark.range(7)


def leaves_things_behind(spark):
    """Changes whatever a process has: sessions, modules, environment, directory, signals, output, threads."""
    import os
    import signal
    import sys
    import threading
    import time
    import types

    from pyspark.sql import SparkSession

    own = SparkSession.builder.config("spark.sql.session.timeZone", "Asia/Tokyo").appName("mine").getOrCreate()
    own.range(1).createOrReplaceTempView("left_behind")
    own.sparkContext._jsc.hadoopConfiguration().set("left.behind", "1")
    os.environ["LEFT_BEHIND"] = "1"
    sys.modules["left_behind"] = types.ModuleType("left_behind")
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout = None

    def goes_on():
        while True:
            spark.range(1).count()
            time.sleep(0.01)

    threading.Thread(target=goes_on).start()
    return spark.sql("SELECT current_timezone() AS zone, count(*) AS views FROM left_behind")


def what_it_finds(spark):
    """Which of these changes another function sees."""
    import importlib.util
    import os

    from pyspark.sql import SparkSession

    own = SparkSession.builder.getOrCreate()
    found = {
        "views": len(own.catalog.listTables()),
        "zone": own.conf.get("spark.sql.session.timeZone"),
        "hadoop": str(own.sparkContext._jsc.hadoopConfiguration().get("left.behind")),
        "variable": os.environ.get("LEFT_BEHIND", ""),
        "module": str(importlib.util.find_spec("left_behind")),
        "directory": os.getcwd(),
        "is_own": own._jsparkSession.equals(spark._jsparkSession),
    }
    return spark.createDataFrame([tuple(map(str, found.values()))], list(found))


def waits_at(spark, gate):
    """Leaves its process id and that of a child at *gate*, and waits there until it is open."""
    import os
    import subprocess
    import time

    if not os.path.exists(f"{gate}/open"):
        child = subprocess.Popen(["sleep", "600"])
        with open(f"{gate}/child-{child.pid}", "w"):
            pass
        with open(f"{gate}/held-{os.getpid()}", "w"):
            pass
    while not os.path.exists(f"{gate}/open"):
        time.sleep(0.02)
    return spark.range(7)


def waits_in_spark(spark, gate):
    """Has Spark wait for *gate* while the job is planned, by a query that is started from a thread."""
    import os
    import threading
    import time

    from pyspark.sql.functions import udf

    def passes(_):
        while not os.path.exists(f"{gate}/open"):
            with open(f"{gate}/held-{os.getpid()}", "w"):
                pass
            time.sleep(0.02)
        return True

    waiting = threading.Thread(target=spark.range(1).where(udf(passes, "boolean")("id")).count)
    waiting.start()
    waiting.join()
    return spark.range(7)


def ends_its_process(spark, how):
    """Ends by exit code or signal, and says so before."""
    import os
    import signal

    print("these are my last words")
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))
    signal.pause()


def prints(spark, lines, fails):
    """Prints more than a log should hold."""
    import sys

    for number in range(lines):
        print(f"line {number} of many", "x" * 1000)
    print("to standard error", file=sys.stderr)
    if fails:
        raise ValueError("after all that")
    return spark.range(1)


def asks_spark_for_what_is_not_there(spark):
    """A function in which Spark raises."""

    def look(name):
        return spark.table(name)

    return look("nowhere")


def pages(spark, count, pause_s):
    """How many pages a source has, and what their numbers are in all: it takes *pause_s* to find each of *count*."""
    import time

    from pyspark.sql import functions
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Pages(DataSource):
        @classmethod
        def name(cls):
            return "pages"

        def schema(self):
            return "page long"

        def reader(self, schema):
            return Reader()

    class Reader(DataSourceReader):
        def partitions(self):
            return list(self.partitions_after(None))

        def partitions_after(self, last):
            for page in range(0 if last is None else last.value + 1, count):
                time.sleep(pause_s)
                yield InputPartition(page)

        def read(self, partition):
            yield (partition.value,)

    spark.dataSource.register(Pages)
    page = functions.col("page")
    found = spark.read.format("pages").load()
    return found.agg(
        functions.count("*").alias("files"),
        functions.count_distinct(page).alias("lines"),
        functions.sum(page).alias("total"),
    )


def what_proc_tells(spark, pids, planted):
    """What a function and a UDF read of other processes: a row each. *planted* is what to look for, backwards."""

    def look(where):
        from pathlib import Path

        secret = planted[::-1].encode()
        read, has_planted, opened = 0, [], []
        for path in map(str, Path("/proc").glob("[0-9]*/environ")):
            try:
                with open(path, "rb") as file:
                    has_planted += [path] if secret in file.read() else []
                read += 1
            except OSError:
                pass
        for pid in pids:
            for name in ("environ", "maps", "mem"):
                try:
                    with open(f"/proc/{pid}/{name}", "rb"):
                        opened.append(f"{pid}/{name}")
                except OSError:
                    pass
        return (where, read, has_planted, opened)

    from pyspark.sql.functions import lit, udf

    schema = "where string, read int, planted array<string>, opened array<string>"
    of_udf = spark.range(1).select(udf(look, schema)(lit("udf")).alias("found")).select("found.*")
    return spark.createDataFrame([look("function")], schema).union(of_udf).orderBy("where")
