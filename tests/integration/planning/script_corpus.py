"""Scripts for comparison with plain Spark: every setting that Spark's parser or analyzer reads, with a query that tells it.

The settings are those that the classes of Spark's packages ``catalyst.parser``, ``catalyst.analysis``,
``catalyst.expressions`` and ``execution.SparkSqlParser`` ask `SQLConf` for, without those of tables in a catalog, which
a job has none of, and of caches and logs. Nearly every query gives other rows, names, types or errors with the setting.
"""
# ruff: noqa: E501  (a query reads best on one line)

import random  # noqa: TID251 seeded
from collections.abc import Iterator

Script = list[str]
"""Statements; the last one gives the rows."""

PAIRS = "VALUES (1, 'a'), (2, 'b'), (3, null) AS t(k, s)"
MAPS = "(SELECT map('k', 1) AS m)"

SETTINGS: list[tuple[str, str, list[str]]] = [
    # What the parser reads.
    ("spark.sql.ansi.enabled", "false", ["SELECT 1/0", "SELECT cast('x' AS INT)", "SELECT 2147483647 + 1", "SELECT array(1)[5]", "SELECT typeof(1 + '1'), make_date(2020, 13, 1)"]),
    ("spark.sql.ansi.doubleQuotedIdentifiers", "true", [f'SELECT "k" FROM {PAIRS}', """SELECT ';"' AS ";" """]),
    ("spark.sql.ansi.enforceReservedKeywords", "true", ["SELECT 1 AS table", "SELECT user FROM (SELECT 1 AS id) AS order"]),
    ("spark.sql.ansi.relationPrecedence", "true", ["SELECT a.x, b.x FROM VALUES (1) a(x), VALUES (1) b(x) JOIN VALUES (1) c(x) ON a.x = c.x"]),
    ("spark.sql.parser.escapedStringLiterals", "true", [r"SELECT 'a\nb', length('\\')", r"SELECT '\'; SELECT 2' AS x", r"SELECT 'ab' RLIKE '^\w+$'"]),
    ("spark.sql.parser.quotedRegexColumnNames", "true", [f"SELECT `k|s` FROM {PAIRS}"]),
    ("spark.sql.parser.singleCharacterPipeOperator.enabled", "false", [f"FROM {PAIRS} | WHERE k > 1"]),
    ("spark.sql.operatorPipeSyntaxEnabled", "false", [f"FROM {PAIRS} |> WHERE k > 1"]),
    ("spark.sql.legacy.setopsPrecedence.enabled", "true", ["SELECT 1 UNION SELECT 2 INTERSECT SELECT 2"]),
    ("spark.sql.legacy.exponentLiteralAsDecimal.enabled", "true", ["SELECT typeof(1e3), 1.5e-2"]),
    ("spark.sql.legacy.consecutiveStringLiterals.enabled", "true", ["SELECT 'a''b', \"c\"\"d\", ';'';'"]),
    ("spark.sql.legacy.bangEqualsNot", "true", ["SELECT 1 ! IN (1, 2)", f"SELECT k FROM {PAIRS} WHERE s IS ! NULL"]),
    ("spark.sql.legacy.parser.havingWithoutGroupByAsWhere", "true", ["SELECT id FROM range(3) HAVING id > 1"]),
    ("spark.sql.legacy.interval.enabled", "true", ["SELECT typeof(INTERVAL '1' DAY), typeof(date'2020-01-02' - date'2020-01-01')"]),
    ("spark.sql.legacy.fromDayTimeString.enabled", "true", ["SELECT INTERVAL '10 11:12:13' DAY TO MINUTE"]),
    ("spark.sql.legacy.identifierClause", "true", ["SELECT * FROM IDENTIFIER('no' || 'where')", f"SELECT IDENTIFIER('k') FROM {PAIRS}"]),
    ("spark.sql.legacy.parameterSubstitution.constantsOnly", "true", ["SELECT typeof(X'1F'), IDENTIFIER('ab' || 's')(-1)"]),
    ("spark.sql.legacy.duplicateBetweenInput", "true", ["SELECT 2 BETWEEN 1 AND 3, 2 NOT BETWEEN 1 AND 3"]),
    ("spark.sql.allowNamedFunctionArguments", "false", ["SELECT mask('aB1', lowerChar => 'q')"]),
    ("spark.sql.variable.substitute", "false", ["SELECT '${no.such}' AS x, '${hivevar:y}'"]),
    ("spark.sql.stableDerivedColumnAlias.enabled", "true", ["SELECT 1  +  1, abs( -1 ), CAST(1 AS bigint)"]),
    ("spark.sql.parser.eagerEvalOfUnresolvedInlineTable", "false", ["VALUES (1, 'a'), (2.5, 'b')", "VALUES (current_date() IS NULL)"]),
    ("spark.sql.timestampType", "TIMESTAMP_NTZ", ["SELECT typeof(timestamp'2020-01-01 00:00:00')", "SELECT typeof(cast('2020-01-01' AS TIMESTAMP)), typeof(to_timestamp('2020-01-01'))", "SELECT typeof(make_timestamp(2020, 1, 1, 0, 0, 0))"]),
    ("spark.sql.timestampNanosTypes.enabled", "true", ["SELECT typeof(cast('2020-01-01 00:00:00.123456789' AS TIMESTAMP_NTZ(9)))"]),
    ("spark.sql.timeType.enabled", "true", ["SELECT cast(TIME'10:00:01' AS STRING)", "SELECT typeof(make_time(1, 2, 3))"]),
    ("spark.sql.session.timeZone", "Asia/Tokyo", ["SELECT timestamp'2020-01-01 00:00:00'", "SELECT cast(timestamp'2020-01-01 00:00:00' AS BIGINT), current_timezone()", "SELECT hour(timestamp_seconds(0)), date_format(timestamp_seconds(0), 'HH xxx')"]),
    ("spark.sql.session.timeZone", "-08:00", ["SELECT timestamp'2020-06-01 12:00:00' > timestamp'2020-06-01 12:00:00Z'", "SELECT from_unixtime(0), unix_timestamp('1970-01-01 00:00:00'), from_utc_timestamp(timestamp_seconds(0), 'CET')"]),
    ("spark.sql.groupByOrdinal", "false", [f"SELECT length(s), count(*) FROM {PAIRS} GROUP BY 1"]),
    ("spark.sql.orderByOrdinal", "false", [f"SELECT k FROM {PAIRS} ORDER BY 1 DESC LIMIT 1", "SELECT * FROM VALUES (2), (1) t(a) ORDER BY 5"]),
    ("spark.sql.preserveCharVarcharTypeInfo", "true", ["SELECT typeof(cast('a' AS CHAR(3))), cast('a' AS CHAR(3)) || '|'"]),
    ("spark.sql.legacy.charVarcharAsString", "true", ["SELECT cast('abcd' AS VARCHAR(2)), typeof(cast('a' AS CHAR(2)))"]),
    ("spark.sql.collation.objectLevel.enabled", "false", ["SELECT typeof('a' COLLATE UTF8_LCASE), 'a' COLLATE UTF8_LCASE = 'A'"]),
    ("spark.sql.geospatial.enabled", "false", ["SELECT hex(st_asbinary(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')))"]),
    # What the analyzer reads.
    ("spark.sql.caseSensitive", "true", [f"SELECT K FROM {PAIRS}", "SELECT a, A FROM (SELECT 1 AS a, 2 AS A)", "SELECT x.B FROM (SELECT named_struct('b', 1) AS x)"]),
    ("spark.sql.groupByAliases", "false", [f"SELECT k % 2 AS odd, count(*) FROM {PAIRS} GROUP BY odd"]),
    ("spark.sql.lateralColumnAlias.enableImplicitResolution", "false", ["SELECT 1 AS a, a + 1 AS b"]),
    ("spark.sql.analyzer.preferColumnOverLcaInArrayIndex", "false", ["SELECT 1 AS a, array(10, 20)[a] FROM (SELECT 0 AS a)"]),
    ("spark.sql.crossJoin.enabled", "false", ["SELECT count(*) FROM range(2) a JOIN range(3) b", "SELECT count(*) FROM range(2) CROSS JOIN range(3)"]),
    ("spark.sql.legacy.ctePrecedencePolicy", "LEGACY", ["WITH t AS (SELECT 1 AS x), u AS (WITH t AS (SELECT 2 AS x) SELECT * FROM t) SELECT * FROM u"]),
    ("spark.sql.legacy.ctePrecedencePolicy", "EXCEPTION", ["WITH t AS (SELECT 1 AS x), u AS (WITH t AS (SELECT 2 AS x) SELECT * FROM t) SELECT * FROM u"]),
    ("spark.sql.decimalOperations.allowPrecisionLoss", "false", ["SELECT typeof(cast(1 AS DECIMAL(38, 18)) * cast(1 AS DECIMAL(38, 18))), cast(1 AS DECIMAL(30, 10)) / 3"]),
    ("spark.sql.legacy.literal.pickMinimumPrecision", "false", ["SELECT typeof(cast(1 AS DECIMAL(5, 2)) * 2)"]),
    ("spark.sql.legacy.decimal.retainFractionDigitsOnTruncate", "true", ["SELECT typeof(cast(1 AS DECIMAL(38, 10)) * cast(1 AS DECIMAL(38, 10)))", "SELECT typeof(coalesce(cast(1 AS DECIMAL(38, 2)), cast(1 AS DECIMAL(38, 30))))"]),
    ("spark.sql.legacy.allowNegativeScaleOfDecimal", "true", ["SELECT typeof(1E10BD)"]),
    ("spark.sql.legacy.sizeOfNull", "false", ["SET spark.sql.ansi.enabled=false", "SELECT size(null), cardinality(cast(null AS ARRAY<INT>))"]),
    ("spark.sql.legacy.nullInEmptyListBehavior", "true", ["SELECT cast(null AS INT) IN (SELECT id FROM range(0))"]),
    ("spark.sql.legacy.inSubqueryNullability", "true", ["SELECT 1 IN (SELECT cast(null AS INT)), 2 NOT IN (SELECT 1)"]),
    ("spark.sql.legacy.statisticalAggregate", "true", ["SELECT stddev(id), corr(id, id), skewness(id), kurtosis(id), covar_samp(id, id) FROM range(1)"]),
    ("spark.sql.legacy.integerGroupingId", "true", [f"SELECT typeof(grouping_id()) FROM {PAIRS} GROUP BY ROLLUP (k, s) LIMIT 1"]),
    ("spark.sql.legacy.groupingIdWithAppendedUserGroupBy", "true", [f"SELECT k, s, grouping_id() FROM {PAIRS} GROUP BY k, s GROUPING SETS ((k), (s))", f"SELECT k, grouping_id() FROM {PAIRS} GROUP BY k, ROLLUP (s)"]),
    ("spark.sql.analyzer.lowerEmptyGroupingSetToGlobalAggregate.enabled", "false", ["SELECT count(*) FROM range(0) GROUP BY GROUPING SETS (())"]),
    ("spark.sql.legacy.allowHashOnMapType", "true", [f"SELECT hash(m) FROM {MAPS}"]),
    ("spark.sql.legacy.collationAwareHashFunctions", "true", ["SELECT hash('A' COLLATE UTF8_LCASE) = hash('a' COLLATE UTF8_LCASE)"]),
    ("spark.sql.legacy.createEmptyCollectionUsingStringType", "true", ["SELECT typeof(array()), typeof(map())"]),
    ("spark.sql.legacy.castComplexTypesToString.enabled", "true", ["SELECT cast(struct(1, null) AS STRING), cast(map(1, 2) AS STRING), cast(array(null) AS STRING)"]),
    ("spark.sql.legacy.typeCoercion.datetimeToString.enabled", "true", ["SELECT date'2020-01-01' > '2020'", "SELECT timestamp'2020-01-01 00:00:00' = '2020-01-01 00:00:00'"]),
    ("spark.sql.legacy.timeParserPolicy", "LEGACY", ["SELECT to_date('2020-1-1 tail', 'yyyy-MM-dd')", "SELECT date_format(timestamp_seconds(0), 'u')"]),
    ("spark.sql.legacy.timeParserPolicy", "EXCEPTION", ["SELECT to_date('2020-1-1 tail', 'yyyy-MM-dd')", "SELECT unix_timestamp('1.1.2020', 'dd.MM.yyyy')"]),
    ("spark.sql.legacy.followThreeValuedLogicInArrayExists", "false", ["SELECT exists(array(1, null), x -> x > 5)"]),
    ("spark.sql.legacy.negativeIndexInArrayInsert", "true", ["SELECT array_insert(array(1, 2, 3), -1, 9)"]),
    ("spark.sql.legacy.allowNullComparisonResultInArraySort", "true", ["SELECT array_sort(array(3, 1), (a, b) -> cast(null AS INT))"]),
    ("spark.sql.legacy.allowParameterlessCount", "true", ["SELECT count() FROM range(3)"]),
    ("spark.sql.legacy.allowStarWithSingleTableIdentifierInCount", "true", [f"SELECT count(t.*) FROM {PAIRS}"]),
    ("spark.sql.legacy.allowZeroIndexInFormatString", "true", ["SELECT format_string('%0$s', 'a')"]),
    ("spark.sql.legacy.lpadRpadAlwaysReturnString", "true", ["SELECT typeof(lpad(X'01', 2, X'00'))"]),
    ("spark.sql.legacy.percentileDiscCalculation", "true", ["SELECT percentile_disc(0.4) WITHIN GROUP (ORDER BY id) FROM range(4)"]),
    ("spark.sql.legacy.raiseErrorWithoutErrorClass", "true", ["SELECT raise_error('own words')"]),
    ("spark.sql.legacy.truncateForEmptyRegexSplit", "true", ["SELECT split('abc', '', 2), size(split('hello', ''))"]),
    ("spark.sql.legacy.histogramNumericPropagateInputType", "false", ["SELECT typeof(histogram_numeric(id, 2)) FROM range(3)"]),
    ("spark.sql.legacy.javaCharsets", "true", ["SELECT hex(encode('a', 'windows-1252'))"]),
    ("spark.sql.legacy.codingErrorAction", "true", ["SELECT hex(encode('渭', 'US-ASCII'))"]),
    ("spark.sql.legacy.scalarSubqueryCountBugBehavior", "true", ["SELECT a.id, (SELECT count(*) FROM range(1, 2) b WHERE b.id = a.id) FROM range(2) a"]),
    ("spark.sql.legacy.scalarSubqueryAllowGroupByNonEqualityCorrelatedPredicate", "true", ["SELECT (SELECT count(*) FROM range(3) b WHERE b.id > a.id GROUP BY b.id LIMIT 1) FROM range(1, 2) a", "SELECT (SELECT sum(b.id) FROM range(3) b WHERE b.id > a.id GROUP BY b.id) FROM range(1, 2) a"]),
    ("spark.sql.analyzer.scalarSubqueryAllowGroupByColumnEqualToConstant", "false", ["SELECT (SELECT sum(b.id) FROM range(3) b WHERE b.id = 1 GROUP BY b.id) AS x FROM range(1)", "SELECT (SELECT count(*) FROM range(3) b WHERE b.id = 1 AND b.id <= a.id GROUP BY b.id) FROM range(2) a"]),
    ("spark.sql.optimizer.scalarSubqueryUseSingleJoin", "false", ["SELECT (SELECT b.id FROM range(3) b WHERE b.id = a.id) FROM range(2) a"]),
    ("spark.sql.optimizer.decorrelateInnerQuery.enabled", "false", ["SELECT (SELECT count(*) FROM range(3) b WHERE b.id < a.id) FROM range(2) a", "SELECT a.id, (SELECT max(b.id + a.id) FROM range(3) b WHERE b.id = a.id) FROM range(2) a"]),
    ("spark.sql.optimizer.decorrelateLimit.enabled", "false", ["SELECT (SELECT b.id FROM range(3) b WHERE b.id = a.id LIMIT 1) FROM range(2) a"]),
    ("spark.sql.optimizer.decorrelateOffset.enabled", "false", ["SELECT (SELECT max(id) FROM (SELECT b.id FROM range(3) b WHERE b.id = a.id LIMIT 1 OFFSET 1)) FROM range(2) a"]),
    ("spark.sql.optimizer.decorrelateSetOps.enabled", "false", ["SELECT (SELECT sum(x) FROM (SELECT a.id AS x UNION ALL SELECT b.id FROM range(1) b WHERE b.id = a.id)) FROM range(2) a"]),
    ("spark.sql.optimizer.disableHints", "true", [f"SELECT /*+ REPARTITION(0) */ k FROM {PAIRS}"]),
    ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", ["SELECT map(1, 'a', 1, 'b')", "SELECT map_from_entries(array(struct(1, 2), struct(1, 3)))"]),
    ("spark.sql.function.concatBinaryAsString", "true", ["SELECT typeof(concat(X'61', X'62'))"]),
    ("spark.sql.function.eltOutputAsString", "true", ["SELECT typeof(elt(1, X'61', X'62'))"]),
    ("spark.sql.binaryOutputStyle", "HEX", ["SELECT cast(X'FF61' AS STRING), concat_ws('|', array(cast(X'61' AS STRING)))"]),
    ("spark.sql.chunkBase64String.enabled", "false", ["SELECT length(base64(repeat('a', 100)))"]),
    ("spark.sql.icu.caseMappings.enabled", "false", ["SELECT upper('ß'), lower('İ'), initcap('ǆ x')"]),
    ("spark.sql.variant.allowDuplicateKeys", "true", ["SELECT to_json(parse_json('{\"a\": 1, \"a\": 2}'))"]),
    ("spark.sql.variant.validateUnicodeInJsonParsing", "false", ["SELECT length(to_json(parse_json('\"\\\\ud800\"')))"]),
    ("spark.sql.view.maxNestedViewDepth", "1", ["CREATE TEMP VIEW v1 AS SELECT 1 AS x", "CREATE TEMP VIEW v2 AS SELECT * FROM v1", "CREATE TEMP VIEW v3 AS SELECT * FROM v2", "SELECT * FROM v3"]),
    ("spark.sql.legacy.storeAnalyzedPlanForView", "true", ["CREATE TEMP VIEW v AS SELECT 1 AS x", "CREATE TEMP VIEW w AS SELECT * FROM v", "CREATE OR REPLACE TEMP VIEW v AS SELECT 2 AS x", "SELECT * FROM w"]),
    ("spark.sql.legacy.useCurrentConfigsForView", "true", ["CREATE TEMP VIEW v AS SELECT cast('x' AS INT) AS x", "SET spark.sql.ansi.enabled=false", "SELECT * FROM v"]),
    ("spark.sql.legacy.allowUdfParameterToShadowParameterlessFunction", "true", ["CREATE TEMPORARY FUNCTION f(current_date INT) RETURNS INT RETURN 1 + current_date", "SELECT f(1)"]),
    ("spark.sql.functionResolution.sessionOrder", "first", ["CREATE TEMPORARY FUNCTION abs(x INT) RETURNS INT RETURN 42", "SELECT abs(-1)"]),
    ("spark.sql.analyzer.allowSubqueryExpressionsInLambdasOrHigherOrderFunctions", "true", ["SELECT transform(array(1, 2), x -> x + (SELECT max(id) FROM range(2)))"]),
    ("spark.sql.analyzer.maxIterations", "1", ["SELECT a.id FROM range(3) a JOIN range(2) b ON a.id = b.id"]),
    ("spark.sql.legacy.keepCommandOutputSchema", "true", ["SHOW TABLES", "CREATE TEMP VIEW v AS SELECT 1 AS x", "SHOW TABLES LIKE 'v'"]),
    ("spark.sql.runSQLOnFiles", "false", ["SELECT * FROM csv.`/no/such/file`"]),
    ("spark.sql.jsonGenerator.ignoreNullFields", "false", ["SELECT to_json(struct(1 AS a, null AS b))"]),
    ("spark.sql.columnNameOfCorruptRecord", "_bad", ["SELECT from_json('{x', 'a INT, _bad STRING')", "SELECT from_csv('x', 'a INT, _bad STRING')"]),
    ("spark.sql.defaultCatalog", "nowhere", ["SELECT current_catalog()", "SELECT current_database()"]),
]  # fmt: skip

WITHOUT_SETTINGS: list[Script] = [
    ["SET var.x=7", "SELECT ${var.x}, '${var.x}', '${hiveconf:var.x}'"],
    ["SET a=1", "-- a comment; with a semicolon\n/* ; */ SELECT '${a}', ';' /* ; /* ; */ ; */"],
    ["SET x=SELECT", "${x} 1 AS one"],
    ["SET t=range(3)", "SELECT * FROM ${t} -- the end"],
    ["SET spark.sql.shuffle.partitions=many", "SELECT 1"],
    ["SET spark.sql.warehouse.dir=/x", "SELECT 1"],
    ["SET TIME ZONE 'America/New_York'", "SELECT timestamp'2020-01-01 00:00:00', current_timezone()"],
    ["SET TIME ZONE INTERVAL '08:30' HOUR TO MINUTE", "SELECT current_timezone()"],
    ["SET spark.sql.ansi.enabled=false", "RESET spark.sql.ansi.enabled", "SELECT 1/0"],
    ["SET spark.sql.ansi.enabled=false", "RESET", "SELECT 1/0"],
    ["DECLARE VARIABLE n INT DEFAULT 2", "SET VAR n = n + 1", "SELECT n, id FROM range(4) WHERE id < n"],
    ["DECLARE s = 'a;b'", "SELECT s, length(s)"],
    ["DECLARE a INT", "DECLARE b INT", "SET VAR (a, b) = (SELECT 1, 2)", "SELECT a, b"],
    ["DECLARE name = 'v'", "CREATE TEMP VIEW v AS SELECT 1 AS x", "SELECT * FROM IDENTIFIER(name)"],
    ["DECLARE OR REPLACE n = 1", "DROP TEMPORARY VARIABLE n", "SELECT n"],
    ["SET VAR nowhere = 1", "SELECT 1"],
    ["DECLARE n INT DEFAULT 'x'", "SELECT n"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x", "SELECT X FROM v"],
    ["CREATE TEMP VIEW v(a, b) AS VALUES (1, 2)", "SELECT b, a FROM v"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x", "CREATE TEMP VIEW v AS SELECT 2 AS x", "SELECT * FROM v"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x", "DROP VIEW v", "SELECT * FROM v"],
    ["CREATE TEMP VIEW v AS SELECT * FROM nowhere", "SELECT 1"],
    ["SET spark.sql.ansi.enabled=false", "CREATE TEMP VIEW v AS SELECT cast('x' AS INT) AS x", "SET spark.sql.ansi.enabled=true", "SELECT * FROM v"],
    ["SET spark.sql.session.timeZone=Asia/Tokyo", "CREATE TEMP VIEW v AS SELECT timestamp'2020-01-01 00:00:00' AS t", "SET spark.sql.session.timeZone=UTC", "SELECT t, hour(t) FROM v"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS a", "SET spark.sql.caseSensitive=true", "SELECT A FROM v"],
    ["CREATE TEMPORARY FUNCTION twice(x BIGINT) RETURNS BIGINT RETURN x * 2", "SELECT twice(id) FROM range(3)"],
    ["CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x / 0", "SET spark.sql.ansi.enabled=false", "SELECT f(1)"],
    ["CREATE TEMPORARY FUNCTION rows_of(n INT) RETURNS TABLE (i BIGINT) RETURN SELECT id FROM range(5) WHERE id < n", "SELECT * FROM rows_of(2)"],
    ["CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x", "DROP TEMPORARY FUNCTION f", "SELECT f(1)"],
    ["CREATE TEMPORARY FUNCTION f AS 'no.such.Class'", "SELECT f(1)"],
    ["USE nowhere", "SELECT 1"],
    ["USE default", "SELECT current_schema()"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x, 'a' AS s", "DESCRIBE v"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x", "SHOW COLUMNS IN v"],
    ["CREATE TEMP VIEW v AS SELECT 1 AS x", "SHOW VIEWS"],
    ["SET a.b=c", "SET a.b"],
    ["DESCRIBE QUERY SELECT 1 AS x, array('a') AS y"],
    ["DESCRIBE FUNCTION EXTENDED abs"],
    ["SHOW FUNCTIONS LIKE 'array_*'"],
    ["SHOW DATABASES"],
    ["SHOW CATALOGS"],
    ["SHOW CURRENT NAMESPACE"],
    ["SHOW TBLPROPERTIES nowhere"],
    ["DESCRIBE nowhere"],
    ["EXPLAIN SELECT 1"],
    ["SELECT 1 +"],
    ["SELECT 'not closed"],
    ["SELECT 1 /* not closed"],
    ["SELECT $$a;b$$"],
    [r"SELECT r'\', 'x;y'"],
    ["SELECT `;` FROM (SELECT 1 AS `;`)"],
    ["SELECT '😀;' AS x, position('b' IN '😀b')"],
    ["SELECT * FROM range(2) -- 😀;\n WHERE id = 1"],
]  # fmt: skip

MIXED = 30
"""Scripts that are put together at random."""


def scripts() -> Iterator[Script]:
    """Yield every script, the same ones each time."""
    yield from WITHOUT_SETTINGS
    for key, value, probes in SETTINGS:
        for statements in _split(probes):
            yield [f"SET {key}={value}", *statements]
    drawn = random.Random(43)
    for _ in range(MIXED):
        yield _mixed(drawn)


def _split(probes: list[str]) -> list[Script]:
    """Return each probe by itself, or all as one script when some only lead to the last one."""
    leads = ("SET ", "CREATE ", "SHOW TABLES")
    return [[p for p in probes if p != "SHOW TABLES"]] if probes[0].startswith(leads) else [[p] for p in probes]


def _mixed(drawn: random.Random) -> Script:
    """Return a script of settings in force and taken back, a view, a function and a variable, and a query that sees all."""
    chosen = drawn.sample([s for s in SETTINGS if len(_split(s[2])) == len(s[2]) and s[0] not in _FATAL], 4)
    (key, _, _), (other, _, _) = chosen[0], chosen[1]
    probe = drawn.choice([p for _, _, probes in chosen for p in probes])
    body = drawn.choice([p for _, _, probes in chosen for p in probes])
    script = [f"SET {k}={v}" for k, v, _ in chosen]
    script.insert(drawn.randrange(5), "DECLARE VARIABLE bound BIGINT DEFAULT 1")
    script.insert(drawn.randrange(6), "CREATE TEMPORARY FUNCTION next(x BIGINT) RETURNS BIGINT RETURN x + 1")
    if drawn.random() < 0.5:
        script.append(f"CREATE TEMP VIEW body AS {body}")
    script += drawn.choice([[], [f"RESET {key}"], [f"RESET {key}", f"RESET {other}"]])
    script += drawn.choice([[], ["SET VAR bound = next(bound)"], ["SET more = bound"]])
    last = [probe, "SELECT * FROM body", "SELECT next(bound), id FROM range(3) WHERE id <= bound"]
    return [*script, drawn.choice(last)]


_FATAL = frozenset({"spark.sql.analyzer.maxIterations", "spark.sql.defaultCatalog"})
"""Settings under which hardly any query works."""
