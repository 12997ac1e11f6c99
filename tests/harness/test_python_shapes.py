"""More shapes of Python code in queries, of files' own columns, and of what only DataFrames can say; one of six, or all (`make test-all`)."""
# ruff: noqa: E501  (a query reads best on one line)

import dataclasses

import pytest

from onager.testing import HarnessConfig, assert_distributed_eq, create_stages
from tests.integration.planning.python_jobs import as_before, query_of
from tests.integration.planning.small_tables import FORMATS
from tests.support.selection import some

FUNCTIONS = {
    "pandas, a series at a time": """
    from typing import Iterator
    @pandas_udf('double')
    def halves(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            yield batch / 2
    return spark.table('sales').select('id', halves('amount').alias('v'))""",
    "pandas of a struct": """
    @pandas_udf('a long, b string')
    def swap(s: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({'a': s.a + 1, 'b': s.b + '!'})
    return spark.table('sales').select(swap('s').alias('v'))""",
    "Arrow, two columns": """
    import pyarrow.compute as pc
    @arrow_udf('string')
    def glue(a: pa.Array, b: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(pc.cast(a, pa.string()), b, '-')
    return spark.table('sales').select(glue('id', 'name').alias('v'))""",
    "Arrow aggregate": """
    import pyarrow.compute as pc
    @arrow_udf('long')
    def total(v: pa.Array) -> int:
        return pc.sum(v).as_py()
    return spark.table('sales').groupBy('k').agg(total('id').alias('v'))""",
    "pandas aggregates, several": """
    @pandas_udf('double')
    def mean(v: pd.Series) -> float:
        return float(v.mean())
    @pandas_udf('long')
    def spread(a: pd.Series, b: pd.Series) -> int:
        return int((a - b).max())
    return spark.table('sales').groupBy('k', 'maybe').agg(mean('amount').alias('m'), spread('id', 'k').alias('s'))""",
    "pandas aggregate of everything": """
    @pandas_udf('long')
    def most(v: pd.Series) -> int:
        return int(v.max())
    return spark.table('sales').agg(most('id').alias('v'))""",
    "pandas over a bounded window": """
    from pyspark.sql import Window
    @pandas_udf('double')
    def mean(v: pd.Series) -> float:
        return float(v.mean())
    frame = Window.partitionBy('k').orderBy('id').rowsBetween(-2, 1)
    return spark.table('sales').select('id', mean('amount').over(frame).alias('m'), F.rank().over(Window.partitionBy('k').orderBy('id')).alias('r'))""",
    "groups in pandas, with their keys": """
    def about(key, frame):
        return pd.DataFrame({'k': [key[0]], 'm': [key[1]], 'n': [len(frame)]})
    return spark.table('sales').select('id', 'k', 'maybe').groupBy('k', F.col('id') % 2).applyInPandas(about, 'k long, m long, n long')""",
    "groups in Arrow, with their keys": """
    def about(key, table):
        return pa.table({'k': [key[0].as_py()], 'n': [table.num_rows]})
    return spark.table('sales').select('id', 'k').groupBy('k').applyInArrow(about, 'k long, n long')""",
    "groups of everything": """
    def about(frame):
        return pd.DataFrame({'n': [len(frame)]})
    return spark.table('sales').select('id').groupBy().applyInPandas(about, 'n long')""",
    "groups that are sorted within": """
    def firsts(frame):
        return frame.sort_values('id').head(2)
    return spark.table('sales').select('id', 'k').groupBy('k').applyInPandas(firsts, 'id long, k long').groupBy('k').agg(F.sum('id'))""",
    "cogroups with keys": """
    def both(key, left, right):
        return pd.DataFrame({'k': [key[0]], 'n': [len(left)], 'm': [len(right)]})
    left = spark.table('sales').select('id', 'k').where('k < 5').groupBy('k')
    return left.cogroup(spark.table('groups').where('k > 2').groupBy('k')).applyInPandas(both, 'k long, n long, m long')""",
    "mapInPandas after an exchange": """
    def sizes(frames):
        yield pd.DataFrame({'n': [sum(len(frame) for frame in frames)]})
    return spark.table('sales').select('id', 'k').repartition(3, 'k').mapInPandas(sizes, 'n long').agg(F.sum('n'))""",
    "mapInArrow into nothing": """
    def nothing(batches):
        for batch in batches:
            yield batch.slice(0, 0)
    return spark.table('sales').select('id').mapInArrow(nothing, 'id long')""",
    "state over sorted rows": """
    class Runs:
        def __init__(self):
            self.last, self.run = None, 0
        def __call__(self, frames):
            for frame in frames:
                runs = []
                for k in frame.k:
                    self.run = self.run + 1 if k == self.last else 1
                    self.last = k
                    runs.append(self.run)
                yield frame.assign(run=runs)
    rows = spark.table('sales').select('id', 'k').repartition(3, 'k').sortWithinPartitions('k', 'id')
    return rows.mapInPandas(Runs(), 'id long, k long, run long')""",
    "udf of nested types": """
    @udf('array<struct<a: long, b: map<string, decimal(20, 2)>>>')
    def nest(x, price):
        return [(x, {'p': price})]
    return spark.table('sales').select(nest('id', 'price').alias('v'))""",
    "udf of moments": """
    import datetime
    later = udf(lambda d: datetime.datetime(d.year, d.month, d.day, 3), 'timestamp_ntz')
    span = udf(lambda d: d - datetime.date(2024, 1, 1), 'interval day to second')
    return spark.table('sales').select(later('day').alias('t'), span('day').alias('s'))""",
    "udf of binary and nulls": """
    raw = udf(lambda s, m: None if m is None else s.encode() * m, 'binary')
    return spark.table('sales').select(raw('name', 'maybe').alias('v'))""",
    "udf in a join's condition": """
    near = udf(lambda a, b: abs(a - b) < 2, 'boolean')
    sales, groups = spark.table('sales').where('id < 30'), spark.table('groups').withColumnRenamed('k', 'g')
    return sales.join(groups, near('id', 'g')).select('id', 'g')""",
    "udf as a join's key": """
    key = udf(lambda x: x % 5, 'long')
    sales, groups = spark.table('sales'), spark.table('groups')
    return sales.hint('merge').join(groups.hint('merge'), key(sales.id) == key(groups.k)).groupBy('label').count()""",
    "udf as a key": "return spark.table('sales').groupBy(udf(lambda x: x % 4, 'long')('id').alias('g')).agg(F.sum('amount'))",
    "udf in an aggregate": "return spark.table('sales').groupBy('k').agg(F.sum(udf(add_offset, 'long')('id')).alias('v'))",
    "udf over an aggregate": "return spark.table('sales').groupBy('k').agg(udf(add_offset, 'long')(F.max('id')).alias('v'))",
    "udf in a subquery": """
    spark.udf.register('offset_of', add_offset, 'long')
    return spark.sql('select id from sales where id > (select max(offset_of(k)) - 800 from sales)')""",
    "udf in a window": """
    from pyspark.sql import Window
    part = udf(lambda x: x % 3, 'long')
    return spark.table('sales').select('id', F.row_number().over(Window.partitionBy(part('k')).orderBy('id')).alias('r'))""",
    "udf in having and order": """
    spark.udf.register('offset_of', add_offset, 'long')
    return spark.sql('select k, count(*) c from sales group by k having offset_of(c) > 1042 order by offset_of(k)')""",
    "udf in an outer join": """
    twice = udf(lambda x: None if x is None else 2 * x, 'long')
    sales, groups = spark.table('sales'), spark.table('groups')
    return sales.join(groups, sales.id == groups.k, 'full').select(twice(sales.id), twice(groups.k))""",
    "kinds of udfs in one row": """
    @pandas_udf('long')
    def one(v: pd.Series) -> pd.Series:
        return v + 1
    two = udf(lambda x: x * 2, 'long')
    return spark.table('sales').select(one(two('id')), two(one('id')), two('k'))""",
    "udf with keyword arguments": """
    minus = udf(lambda a, b: a - b, 'long')
    return spark.table('sales').select(minus(b=F.col('k'), a=F.col('id')).alias('v'))""",
    "udf of a variant": """
    kind = udf(lambda v: str(v.toPython()), 'string')
    return spark.table('sales').select(kind(F.parse_json(F.to_json('s'))).alias('v'))""",
    "udf that is not deterministic": """
    import random
    coin = udf(lambda: random.random(), 'double').asNondeterministic()
    return spark.table('sales').withColumn('c', coin()).where('c >= 0 and c < 1').select('id')""",
    "udtf over a table, by key": """
    @udtf(returnType='k long, n long')
    class Count:
        def __init__(self):
            self.k, self.n = None, 0
        def eval(self, row):
            self.k, self.n = row['k'], self.n + 1
        def terminate(self):
            if self.n:  # plain Spark fails over what is given here by a task without rows
                yield self.k, self.n
    spark.udtf.register('count_of', Count)
    return spark.sql('select * from count_of(table(sales) partition by k order by id)')""",
    "udtf that ends without rows in one of two tasks": """
    @udtf(returnType='n long', useArrow=True)
    class Count:
        def __init__(self):
            self.n = 0
        def eval(self, row):
            self.n += 1
        def terminate(self):
            yield self.n,
    spark.udtf.register('number_of', Count)
    spark.conf.set('spark.sql.shuffle.partitions', '1')  # plain Spark fails over such a task
    return spark.sql('select * from number_of(table(select k from groups where k < 1) partition by k)')""",
    "udtf over a whole table": """
    @udtf(returnType='n long')
    class Sum:
        def __init__(self):
            self.n = 0
        def eval(self, row):
            self.n += row['id']
        def terminate(self):
            yield self.n,
    spark.udtf.register('sum_of', Sum)
    return spark.sql('select * from sum_of(table(select id from sales) with single partition)')""",
    "udtf that says what it gives": """
    from pyspark.sql.udtf import AnalyzeResult
    from pyspark.sql.types import StructType
    @udtf
    class Wide:
        @staticmethod
        def analyze(n):
            return AnalyzeResult(StructType().add('v', n.dataType))
        def eval(self, n):
            yield n,
    spark.udtf.register('wide', Wide)
    return spark.sql('select w.v, k from groups, lateral wide(label) w')""",
}

FILES = {
    "where rows of Parquet are from": "return spark.read.parquet(paths['sales']).select('id', '_metadata.file_path', '_metadata.file_name', '_metadata.row_index')",
    "blocks and times": "return spark.read.parquet(paths['parts']).select('part', '_metadata.file_block_start', '_metadata.file_block_length', '_metadata.file_modification_time')",
    "of orc": "return spark.read.orc(paths['lines_orc']).select('id', '_metadata.file_name', '_metadata.file_size')",
    "of json": "return spark.read.json(paths['lines_json']).where(\"_metadata.file_name = '2.json'\").select('id', '_metadata')",
    "of text": "return spark.read.text(paths['words_txt']).groupBy('_metadata.file_name').agg(F.max('value'))",
    "the whole struct": "return spark.read.parquet(paths['sales']).select('id', '_metadata')",
    "over an exchange": "return spark.read.parquet(paths['sales']).select('k', F.col('_metadata.file_name').alias('f')).groupBy('k', 'f').count().orderBy('f', 'k')",
    "functions of the input": "return spark.read.csv(paths['lines_csv'], header=True).select('id', F.input_file_name(), F.input_file_block_start())",
    "a row's number in a join": "t = spark.read.parquet(paths['sales'])\n    return t.select('id', '_metadata.row_index').join(spark.table('groups'), F.col('row_index') == F.col('k'))",
    "columns merged over files": "return spark.read.option('mergeSchema', True).parquet(paths['sales']).select('id')",
    "a schema of one's own": "return spark.read.schema('k long, missing string, id long').parquet(paths['sales']).select('id', 'missing')",
    "rows that are damaged": "return spark.read.schema('id int, _corrupt_record string').json(paths['words_txt']).select('id', '_corrupt_record')",
    "some of the files": "return spark.read.parquet(paths['sales'] + '/[01].parquet').agg(F.count('*'), F.max('id'))",
    "binary files": "return spark.read.format('binaryFile').option('pathGlobFilter', '*.txt').load(paths['words_txt']).select('path', 'length', F.sha2('content', 256))",
    "xml": "return spark.read.option('rowTag', 'row').schema('id int').xml(paths['words_txt']).select('id')",
    "nested columns pruned": "return spark.read.parquet(paths['sales']).select('s.b', F.col('pair')[0])",
}

FRAMES = {
    "without duplicates": "return spark.table('sales').select('k', 'maybe').dropDuplicates(['k', 'maybe'])",
    "union by name with missing columns": "return spark.table('sales').select('id', 'k').unionByName(spark.table('groups'), allowMissingColumns=True)",
    "except and intersect all": "a, b = spark.table('sales').select('k'), spark.table('groups').select('k')\n    return a.exceptAll(b).intersectAll(a)",
    "pivot": "return spark.table('sales').groupBy('k').pivot('maybe', [0, 1, 2]).agg(F.sum('amount'), F.count('id'))",
    "melt": "return spark.table('sales').select('id', 'k', 'maybe').unpivot('id', ['k', 'maybe'], 'what', 'v')",
    "cube and grouping sets": "t = spark.table('sales')\n    return t.cube('k', 'maybe').agg(F.grouping_id(), F.count('*')).union(t.groupingSets([['k'], []], 'k').agg(F.lit(1), F.lit(1), F.count('*')).toDF('a', 'b', 'c', 'd'))",
    "nulls replaced": "return spark.table('sales').select('id', 'maybe', 'name').fillna({'maybe': -1}).replace('name 3', 'three').dropna()",
    "repartitioned by id": "return spark.table('sales').repartitionById(4, F.col('k').cast('int')).select('k', F.spark_partition_id())",
    "repartitioned by id and grouped": "return spark.table('sales').repartitionById(4, F.col('k').cast('int')).groupBy('k').count()",
    "sampled with replacement": "return spark.table('sales').coalesce(1).sample(True, 0.4, 3).select('id')",
    "limit and offset": "return spark.table('sales').orderBy('id').offset(5).limit(20).select('id', 'k').orderBy(F.desc('id'))",
    "described": "return spark.table('sales').select('id', 'amount').summary('count', 'min', 'max')",
    "columns of a lateral join": "return spark.table('groups').lateralJoin(spark.range(3).select((F.col('k').outer() + F.col('id')).alias('v')))",
    "a scalar of another frame": "return spark.table('sales').where(F.col('id') > spark.table('groups').select(F.max('k')).scalar())",
    "exists of another frame": "s = spark.table('sales')\n    return spark.table('groups').where(s.where(s.k == F.col('k').outer()).exists())",
    "session windows": "return spark.table('sales').groupBy(F.session_window(F.col('day').cast('timestamp'), '2 days'), 'k').agg(F.sum('id'))",
    "as-of join": "a = spark.table('sales').select('id', 'k')\n    b = spark.table('groups').withColumn('t', F.col('k') * 10)\n    return a._joinAsOf(b, a.id, b.t, how='left').select('id', 't', 'label')",
    "json of rows": "return spark.createDataFrame([(1, {'a': [1, 2]}, None), (2, {}, 1.5)], 'x int, y map<string, array<int>>, z double').select(F.to_json(F.struct('*')))",
    "rows of every kind": "import datetime, decimal\n    return spark.createDataFrame([(decimal.Decimal('1.5'), datetime.date(2024, 1, 1), b'x', [1], (1, 'a'))], 'a decimal(38,18), b date, c binary, d array<int>, e struct<x:int,y:string>').repartition(2)",
    "rows of Arrow": "return spark.createDataFrame(pa.table({'x': list(range(50)), 'y': ['a', None] * 25})).groupBy('y').sum('x')",
    "an RDD that was repartitioned": "return spark.sparkContext.parallelize(range(40), 4).map(lambda x: (x % 3, x)).reduceByKey(lambda a, b: a + b).toDF(['k', 'v']).join(spark.table('groups'), 'k')",
    "no rows and no columns": "from pyspark.sql.types import StructType\n    return spark.createDataFrame([], StructType())",
    "no columns after an exchange": "return spark.table('sales').repartition(3).select()",
    "no columns of an aggregate": "return spark.table('sales').groupBy('k').count().select()",
    "no columns of a join": "return spark.table('sales').join(spark.table('groups'), 'k').select()",
    "no columns in a cross join": "return spark.table('groups').select().crossJoin(spark.range(3).select()).select(F.lit(1).alias('one'))",
    "metrics observed twice": "t = spark.table('sales').observe('a', F.count('*').alias('n'))\n    return t.join(t, 'id').groupBy('id').count().observe('b', F.max('id').alias('m'))",
}

TABLES = {"functions": FUNCTIONS, "files": FILES, "frames": FRAMES}
ALL = {f"{topic}: {name}": body for topic, table in TABLES.items() for name, body in table.items()}
PIECES = HarnessConfig(tasks=2, conf={"spark.sql.files.openCostInBytes": "1000000"})
"""Files are not split further than plain Spark does: some of the shapes show where a block of a file begins."""


@pytest.mark.parametrize("body", some((pytest.param(body, id=name) for name, body in ALL.items()), one_in=6))
def test_shape(spark, tables, body):
    with as_before(spark):
        frame = query_of(body)(spark, {name: str(tables / name) for name in FORMATS})
        is_cut = create_stages(frame, PIECES).is_cut
        assert_distributed_eq(frame, dataclasses.replace(PIECES, single_stage=not is_cut))
