"""Jobs that are Python functions: what they may use, what is refused, and their error messages."""
# ruff: noqa: E501  (a query reads best on one line)

import io
import threading
import zipfile

import psutil
import pytest
from pyspark.errors import AnalysisException

from onager.errors import PlanningError, PlanningTimeoutError, SideEffectError, UserCodeError
from onager.protocol import onager_pb2 as pb
from tests.integration.planning.python_jobs import compare, source
from tests.support.selection import some
from tests.support.spark.one_executor import CUT
from tests.support.waiting import HANGS_S, until

SHAPES = {
    "udf": "return spark.table('sales').select(udf(add_offset, 'long')('id').alias('v'))",
    "udf without Arrow": "return spark.table('sales').select(udf(add_offset, 'long', useArrow=False)('id').alias('v'))",
    "udf with Arrow": "return spark.table('sales').select(udf(add_offset, 'long', useArrow=True)('id').alias('v'))",
    "udf in a filter": "return spark.table('sales').where(udf(lambda x: x % 2 == 0, 'boolean')('id')).groupBy('k').count()",
    "chained udfs": """
    one, two = udf(add_offset, 'long'), udf(lambda x: x * 2, 'long')
    return spark.table('sales').select(two(one('id')).alias('v'))""",
    "pandas udf": """
    @pandas_udf('double')
    def plus(v: pd.Series) -> pd.Series:
        return v + OFFSET
    return spark.table('sales').select('id', plus('amount').alias('v'))""",
    "arrow udf": """
    @arrow_udf('long')
    def plus(v: pa.Array) -> pa.Array:
        return pa.compute.add(v, 1)
    import pyarrow.compute
    return spark.table('sales').select(plus('id').alias('v'))""",
    "pandas aggregate": """
    @pandas_udf('double')
    def mean(v: pd.Series) -> float:
        return float(v.mean())
    return spark.table('sales').groupBy('k').agg(mean('amount').alias('m'))""",
    "pandas window": """
    from pyspark.sql import Window
    @pandas_udf('double')
    def mean(v: pd.Series) -> float:
        return float(v.mean())
    return spark.table('sales').select('id', mean('amount').over(Window.partitionBy('k')).alias('m'))""",
    "applyInPandas": """
    def centre(frame):
        return frame.assign(amount=frame.amount - frame.amount.mean())[['id', 'amount']]
    return spark.table('sales').select('id', 'k', 'amount').groupBy('k').applyInPandas(centre, 'id long, amount double')""",
    "applyInArrow": """
    def first(table):
        return table.slice(0, 1).select(['k'])
    return spark.table('sales').select('id', 'k').groupBy('k').applyInArrow(first, 'k long')""",
    "cogroup": """
    def both(left, right):
        return pd.DataFrame({'n': [len(left)], 'm': [len(right)]})
    sales, groups = spark.table('sales').select('id', 'k'), spark.table('groups')
    return sales.groupBy('k').cogroup(groups.groupBy('k')).applyInPandas(both, 'n long, m long')""",
    "cogroup in Arrow": """
    def both(left, right):
        return pa.table({'n': [left.num_rows], 'm': [right.num_rows]})
    sales, groups = spark.table('sales').select('id', 'k'), spark.table('groups')
    return sales.groupBy('k').cogroup(groups.groupBy('k')).applyInArrow(both, 'n long, m long')""",
    "mapInPandas": """
    def double(frames):
        for frame in frames:
            yield frame * 2
    return spark.table('sales').select('id', 'k').mapInPandas(double, 'id long, k long')""",
    "mapInArrow": """
    def same(batches):
        yield from batches
    return spark.table('sales').select('id', 'k').mapInArrow(same, 'id long, k long')""",
    "udtf": """
    @udtf(returnType='n long')
    class Twice:
        def eval(self, x: int):
            yield x,
            yield x,
    spark.udtf.register('twice', Twice)
    return spark.sql('select t.n from groups, lateral twice(k) t')""",
    "arrow udtf": """
    @arrow_udtf(returnType='n long')
    class Same:
        def eval(self, x: pa.Array):
            yield pa.table({'n': x})
    return Same(F.lit(3))""",
    "registered udf": """
    spark.udf.register('offset_of', add_offset, 'long')
    return spark.sql('select offset_of(id) from sales')""",
    "rows of Python": "return spark.createDataFrame([(1, 'a'), (2, None)], 'x int, y string').groupBy('y').count()",
    "rows of pandas": "return spark.createDataFrame(pd.DataFrame({'x': range(10), 'y': ['a'] * 10})).where('x > 3')",
    "rows of an RDD": "return spark.sparkContext.parallelize(range(10), 3).map(lambda x: (x, x * x)).toDF(['a', 'b'])",
    "no rows": "return spark.createDataFrame([], 'x int')",
    "no columns": "return spark.table('sales').select()",
    "cache": "return spark.table('sales').cache().groupBy('k').count()",
    "observe": "return spark.table('sales').observe('seen', F.count('*').alias('n')).groupBy('k').count()",
    "a command of the session": """
    spark.sql("set spark.sql.shuffle.partitions=2")
    spark.sql("create temp view few as select * from sales where id < 10")
    return spark.table('few')""",
    "SQL over frames and values by name": """
    few = spark.table('sales').where('id < 10')
    return spark.sql('select id, k from {few} where k < {most}', few=few, most=3)""",
    "SQL with parameters": "return spark.sql('select id from sales where k < :most', args={'most': 3})",
    "metadata columns": """
    frame = spark.read.parquet(paths['sales'])
    return frame.select('id', '_metadata.file_size', '_metadata.row_index', F.input_file_name())""",
    "metadata of csv": """
    frame = spark.read.csv(paths['lines_csv'], header=True)
    return frame.groupBy('_metadata.file_name').count()""",
    "binary files": "return spark.read.format('binaryFile').load(paths['words_txt']).select('length')",
    "whole text": "return spark.read.text(paths['words_txt'], wholetext=True).select(F.length('value'))",
    "multi-line json": "return spark.read.json(paths['lines_json'], multiLine=True).select('k')",
    "sampled by": "return spark.table('sales').sampleBy('k', {1: 1.0}, seed=3).select('id')",
    "grouped map over a join": """
    def size(frame):
        return pd.DataFrame({'n': [len(frame)]})
    joined = spark.table('sales').select('id', 'k').join(spark.table('groups'), 'k')
    return joined.groupBy('label').applyInPandas(size, 'n long')""",
}


@pytest.mark.parametrize("body", some(pytest.param(body, id=name) for name, body in SHAPES.items()))
def test_shape(executor, tables, body):
    compare(executor, tables, body)


def test_modules_given_with_the_job_are_pickled_by_value(executor, tables):
    text = """
from helpers import plus_seven
from pack.inner import TWO
from pyspark.sql.functions import udf
def query(spark):
    return spark.table('groups').select(udf(lambda x: plus_seven(x) * TWO, 'long')('k').alias('v'))
"""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pack/__init__.py", "")
        archive.writestr("pack/inner.py", "TWO = 2\n")
    files = [
        pb.PyFile(name="helpers.py", content=b"SEVEN = 7\ndef plus_seven(x):\n    return x + SEVEN\n"),
        pb.PyFile(name="pack.zip", content=packed.getvalue()),
    ]
    got = executor.run(executor.plan_python(text, views=tables, py_files=files))
    assert sorted(got) == [((k + 7) * 2,) for k in range(20)]
    import sys

    assert not {"helpers", "pack", "pack.inner"} & set(sys.modules)


def test_a_pickled_function_with_arguments(executor, tables):
    from pyspark import cloudpickle

    def query(spark, *, limit):
        return spark.table("groups").where(f"k < {limit}").select("k")

    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    function = pb.PythonFunction(pickled=cloudpickle.dumps(query), arguments_json='{"limit": 3}')
    outcome = executor.plan(pb.JobSpec(python=function, views=tables, conf={"onager.fusion.maxBytes": "0"}))
    assert sorted(executor.run(outcome)) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("spark.range(3).write.parquet('/tmp/never')", "DataFrameWriter.parquet"),
        ("spark.range(3).write.format('json').save('/tmp/never')", "DataFrameWriter.save"),
        ("spark.range(3).write.saveAsTable('never')", "DataFrameWriter.saveAsTable"),
        ("spark.range(3).writeTo('never').create()", "DataFrameWriterV2.create"),
        ("spark.range(3).createGlobalTempView('never')", "DataFrame.createGlobalTempView"),
        ("spark.range(3).foreach(print)", "DataFrame.foreach"),
        ("spark.range(3).checkpoint()", "DataFrame.checkpoint"),
        ("spark.sql('create table never as select 1')", "create table never as select 1"),
        ("spark.sql(\"insert overwrite directory '/tmp/never' using json select 1\")", "insert overwrite directory"),
    ],
)
def test_what_writes_is_refused_while_the_function_runs(executor, body, call):
    with pytest.raises(SideEffectError) as refused:
        executor.plan_python(source(body))
    assert call in str(refused.value)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("addFile('/etc/hosts')", "--py-file"),
        ("addPyFile('/etc/hosts')", "--py-file"),
        ("addArchive('/etc/hosts')", "where all executors see it"),
        ("setCheckpointDir('/tmp/never')", "not checkpointed"),
        ("setSystemProperty('onager.never', '1')", "--conf"),
    ],
)
def test_what_changes_the_context_of_every_job_is_refused(executor, call, advice):
    with pytest.raises(SideEffectError, match=advice) as refused:
        executor.plan_python(source(f"spark.sparkContext.{call}"))
    assert f"SparkContext.{call.partition('(')[0]}" in str(refused.value)
    context = executor.spark.sparkContext
    assert (context.listFiles, context.listArchives, context.getCheckpointDir()) == ([], [], None)


def test_a_setting_of_hadoop_is_taken_back_where_the_job_made_it_and_refused_where_executors_did(executor):
    hadoop = "hadoop = spark.sparkContext._jsc.hadoopConfiguration()"
    own = f"{hadoop}; hadoop.set('my.own', '1'); hadoop.unset('my.own')"
    left = "spark.createDataFrame([(spark.conf.get('my.own', 'none'), hadoop.get('my.own'))], 'a string, b string')"
    assert executor.run(executor.plan_python(source(f"{own}; return {left}"))) == [("none", None)]
    with pytest.raises(Exception, match=r"fs\.defaultFS is a setting of the executor, .*: set it to another value"):
        executor.plan_python(source(f"{hadoop}; hadoop.unset('fs.defaultFS')"))


def test_writing_works_again_outside_of_planning(executor, tmp_path):
    executor.plan_python(source("return spark.range(3)"))
    executor.spark.range(3).write.parquet(str(tmp_path / "out"))
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_an_exception_of_the_function_keeps_the_users_traceback(executor):
    with pytest.raises(UserCodeError) as failed:
        executor.plan_python("def query(spark):\n    return inner()\n\ndef inner():\n    return {}['missing']\n")
    message = str(failed.value)
    assert "query (job.py) raised KeyError: 'missing'" in message
    assert 'File "job.py", line 5, in inner' in message
    assert "return {}['missing']" in message
    assert "python_function.py" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def query(spark):\n    return 7\n", "returned a builtins.int"),
        ("def query(spark):\n    pass\n", "returned nothing"),
        ("def other(spark):\n    pass\n", "job.py defines no function 'query'; it defines: other"),
        ("def query(spark:\n", "SyntaxError"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("def query(spark, needed):\n    pass\n", "missing 1 required positional argument: 'needed'"),
        ("import sys\ndef query(spark):\n    sys.exit(3)\n", "called sys.exit(3)"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(executor, text, words):
    with pytest.raises(PlanningError) as failed:
        executor.plan_python(text)
    assert words in str(failed.value)


def test_an_error_of_spark_in_the_function_stays_sparks(executor):
    with pytest.raises(AnalysisException) as failed:
        executor.plan_python("def query(spark):\n    return spark.table('nowhere')\n")
    assert failed.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"


def test_python_functions_decode_in_another_process(executor, tables):
    """The rows came out right above in this process; here the fragment is opened by a JVM that never saw the job."""
    import subprocess
    import sys
    from pathlib import Path

    text = source(SHAPES["pandas udf"])
    outcome = executor.plan_python(text, views=tables)
    (stage,) = outcome.stages
    encoded = next(blob.content for blob in outcome.blobs if blob.digest == stage.plan_digest)
    path = executor.directory / "encoded.plan"
    Path(path).write_bytes(encoded)
    script = Path(__file__).with_name("run_leaf_stage.py")
    done = subprocess.run(
        [sys.executable, str(script), str(path)], check=False, capture_output=True, text=True, timeout=HANGS_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == f"300 {sum(i * 1.5 + 1000 for i in range(300))}"


def test_what_a_function_leaves_running_ends_with_it(executor):
    text = """
import subprocess, sys, threading
def query(spark):
    def go_on():
        while True:
            spark.range(1).count()
    for _ in range(3):
        threading.Thread(target=go_on).start()
    started = [subprocess.Popen(["sleep", "600"], start_new_session=apart) for apart in (False, True)]
    return spark.createDataFrame([(child.pid,) for child in started], "pid long")
"""
    left = {pid for (pid,) in executor.run(executor.plan_python(text))}
    until(lambda: not left & set(psutil.pids()), what="the end of what the function started")
    # Spark tells of a cancelled job's end a moment later.
    until(lambda: not executor.spark.sparkContext.statusTracker().getActiveJobsIds(), what="an idle Spark")


@pytest.mark.parametrize("action", ["toPandas()", "toLocalIterator().__next__()"])
def test_what_sparks_own_threads_do_for_a_function_ends_with_it(executor, action):
    """Rows for Python are made by threads that Spark starts to serve them."""
    text = f"""
import threading, time
def query(spark):
    slow = spark.range(0, 1 << 40, 1, 2).selectExpr("sum(hash(id))")
    threading.Thread(target=lambda: slow.{action}).start()
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)
    return spark.range(1)
"""
    executor.plan_python(text)
    until(lambda: not executor.spark.sparkContext.statusTracker().getActiveJobsIds(), what="an idle Spark")


def test_accumulators_count_while_the_function_runs(executor):
    text = """
def query(spark):
    counted = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize(range(10), 2).foreach(lambda x: counted.add(x))
    return spark.createDataFrame([(counted.value,)], "n long")
"""
    assert executor.run(executor.plan_python(text)) == [(45,)]


def test_a_function_that_is_slow_to_take_what_tasks_add_holds_up_nobody_else(executor, tmp_path):
    text = """
import os, time
from pyspark import AccumulatorParam, TaskContext
def query(spark, directory):
    class Slow(AccumulatorParam):
        def zero(self, value):
            return value
        def addInPlace(self, one, other):
            if TaskContext.get() is None:
                open(f"{directory}/began", "w").close()
                while not os.path.exists(f"{directory}/goes_on"):
                    time.sleep(0.01)
                time.sleep(0.1)
            return one + other
    counted = spark.sparkContext.accumulator(0, Slow())
    spark.sparkContext.parallelize(range(10), 5).foreach(lambda x: counted.add(x))
    return spark.createDataFrame([(counted.value,)], "n long")
"""
    outcomes = []

    def plan() -> None:
        conf = CUT | {"onager.planning.timeout": f"{HANGS_S:g}s"}
        outcomes.append(executor.plan_python(text, conf=conf, arguments={"directory": str(tmp_path)}))

    planning = threading.Thread(target=plan)
    planning.start()
    until((tmp_path / "began").exists)
    assert executor.spark.range(0, 10, 1, 2).count() == 10
    assert planning.is_alive()
    (tmp_path / "goes_on").touch()
    planning.join()
    assert executor.run(outcomes[0]) == [(45,)]


def test_a_whole_query_may_use_what_belonged_to_its_function(executor):
    text = """
from pyspark.sql.functions import udf
def query(spark):
    context = spark.sparkContext
    known = context.broadcast({n: n * n for n in range(10)})
    counted = context.accumulator(0)
    def square(n):
        counted.add(1)
        return known.value[n]
    rows = context.parallelize([(n,) for n in range(10)], 2).toDF("n long")
    return rows.select(udf(square, "long")("n").alias("v"))
"""
    got = executor.run(executor.plan_python(text, conf={}))
    assert sorted(got) == [(n * n,) for n in range(10)]


def test_a_function_that_cancels_all_jobs_cancels_its_own(executor):
    running = threading.Event()
    ends = []

    def count() -> None:
        running.set()
        ends.append(executor.spark.range(0, 30_000_000, 1, 1).selectExpr("sum(hash(id))").collect())

    other = threading.Thread(target=count)
    other.start()
    assert running.wait(HANGS_S)
    text = "def query(spark):\n    spark.sparkContext.cancelAllJobs()\n    return spark.range(1)\n"
    assert executor.run(executor.plan_python(text)) == [(0,)]
    other.join()
    assert len(ends) == 1


def test_a_large_function_and_large_arguments_travel(executor):
    text = f"DATA = {'x' * 3_000_000!r}\ndef query(spark, more):\n    return spark.range(len(DATA) + len(more)).groupBy().count()\n"
    assert executor.run(executor.plan_python(text, arguments={"more": "y" * 3_000_000})) == [(6_000_000,)]


def test_an_exception_that_is_no_exception_of_the_usual_kind_is_reported_too(executor):
    with pytest.raises(UserCodeError, match="raised KeyboardInterrupt") as failed:
        executor.plan_python("def query(spark):\n    raise KeyboardInterrupt\n")
    assert failed.value.raised == "KeyboardInterrupt"


@pytest.mark.parametrize("character", ["😀", "\\x01", "\\udcff"])
def test_however_long_and_whatever_its_text_an_exception_is_reported(executor, character):
    text = f"def query(spark):\n    raise ValueError('{character}' * 200_000)\n"
    with pytest.raises(UserCodeError, match="raised ValueError: ") as failed:
        executor.plan_python(text, conf=CUT | {"onager.planning.timeout": f"{HANGS_S:g}s"})
    assert failed.value.raised == "ValueError"
    str(failed.value).encode()


def test_a_process_that_has_left_its_group_is_stopped_in_time(executor, tmp_path):
    text = """
import os, time
def query(spark, mark, for_s):
    os.setpgid(0, os.getppid())
    with open(mark, "w") as reported:
        print("left", file=reported, flush=True)
        time.sleep(for_s)
        print("ended by itself", file=reported)
"""
    mark = tmp_path / "mark"
    arguments = {"mark": str(mark), "for_s": HANGS_S}
    for limit in ("5s", "20s", "80s", "320s"):
        with pytest.raises(PlanningTimeoutError):
            executor.plan_python(text, conf=CUT | {"onager.planning.timeout": limit}, arguments=arguments)
        if mark.exists():
            break  # else the machine is so busy that the function had not begun
    assert mark.read_text() == "left\n"


def test_a_function_s_random_numbers_are_its_own(executor):
    text = """
import random
def query(spark):
    import numpy as np
    return spark.createDataFrame([(float(np.random.random()), random.random())], "a double, b double")
"""
    (first,), (second,) = (executor.run(executor.plan_python(text)) for _ in range(2))
    assert not set(first) & set(second)
