--- declared
BEGIN DECLARE x INT; DECLARE y INT DEFAULT 5; DECLARE z = 'a'; DECLARE VARIABLE w DOUBLE DEFAULT 1.5; SELECT x, y, z, w, typeof(z); END
--- several in one
BEGIN DECLARE x, y INT DEFAULT 1; SET x = 2; SELECT x, y; END
--- default of an expression
BEGIN DECLARE x INT DEFAULT 1 + 2 * 3; DECLARE y INT DEFAULT x + 1; SELECT x, y; END
--- default of a subquery
BEGIN DECLARE x INT DEFAULT (SELECT 1); SELECT x; END
--- default of a wrong value
BEGIN DECLARE x INT DEFAULT 'nope'; SELECT x; END
--- default of another type
BEGIN DECLARE x STRING DEFAULT 5; DECLARE y DATE DEFAULT '2026-01-02'; SELECT x, y, typeof(x), typeof(y); END
--- declared twice
BEGIN DECLARE x INT; DECLARE x INT; END
--- declared twice in another case
BEGIN DECLARE x INT; DECLARE X INT; END
--- declared after a statement
BEGIN SELECT 1; DECLARE x INT; END
--- declared in a loop
BEGIN WHILE true DO DECLARE x INT; END WHILE; END
--- declared in a block within a loop
BEGIN DECLARE n INT DEFAULT 0; DECLARE s STRING DEFAULT ''; WHILE n < 3 DO BEGIN DECLARE x INT DEFAULT 7; SET s = s || x; SET x = n; SET n = n + 1; END; END WHILE; SELECT s; END
--- or replace
BEGIN DECLARE OR REPLACE x INT; END
--- qualified names in declare
BEGIN DECLARE a.x INT; END
--- dropped
BEGIN DECLARE x INT; DROP TEMPORARY VARIABLE x; END
--- shadowed
BEGIN DECLARE x INT DEFAULT 1; BEGIN DECLARE x INT DEFAULT 2; SET x = x + 10; END; SELECT x; END
--- shadowed and seen
BEGIN DECLARE x INT DEFAULT 1; BEGIN DECLARE x STRING DEFAULT 'in'; SELECT x, typeof(x); END; END
--- by label
BEGIN a: BEGIN DECLARE x INT DEFAULT 1; b: BEGIN DECLARE x INT DEFAULT 2; SELECT a.x, b.x, x, A.X; END; END; END
--- set by label
BEGIN a: BEGIN DECLARE x INT DEFAULT 1; b: BEGIN DECLARE x INT DEFAULT 2; SET a.x = 10; SET x = b.x + a.x; SELECT a.x, x; END; END; END
--- a label without that variable
BEGIN a: BEGIN DECLARE x INT DEFAULT 1; b: BEGIN SELECT b.x; END; END; END
--- set with a label without that variable
BEGIN a: BEGIN DECLARE x INT DEFAULT 1; b: BEGIN SET b.x = 1; END; END; END
--- out of scope
BEGIN BEGIN DECLARE x INT; END; SELECT x; END
--- set what is not there
BEGIN SET nowhere = 1; END
--- three parts
BEGIN DECLARE x INT; SELECT a.b.x; END
--- set several
BEGIN DECLARE x INT DEFAULT 1; DECLARE y INT DEFAULT 2; SET x = y, y = x; SELECT x, y; END
--- set from a query
BEGIN DECLARE x INT; DECLARE y STRING; SET (x, y) = (SELECT max(id), 'z' FROM range(5)); SELECT x, y; END
--- set from a query without rows
BEGIN DECLARE x INT DEFAULT 1; DECLARE y INT DEFAULT 1; SET (x, y) = (SELECT id, id FROM range(0)); SELECT x, y; END
--- set from a query of more rows
BEGIN DECLARE x INT; SET (x) = (SELECT id FROM range(2)); END
--- set from a scalar query of more rows
BEGIN DECLARE x INT; SET x = (SELECT id FROM range(2)); END
--- set too few
BEGIN DECLARE x INT; DECLARE y INT; SET (x, y) = (SELECT 1); END
--- set twice
BEGIN DECLARE x INT; SET x = 1, x = 2; END
--- set twice from a query
BEGIN DECLARE x INT; SET (x, X) = (SELECT 1, 2); END
--- set to the default
BEGIN DECLARE x INT DEFAULT 5; SET x = 1; SET x = DEFAULT; SELECT x; END
--- set with a cast
BEGIN DECLARE x INT; SET x = '7'; SELECT x; SET x = 7.9; SELECT x, typeof(x); END
--- set a wrong value
BEGIN DECLARE x INT; SET x = 'nope'; END
--- set a value that is too large
BEGIN DECLARE x TINYINT; SET x = 300; END
--- set to null
BEGIN DECLARE x INT DEFAULT 1; SET x = NULL; SELECT x; END
--- set var is not known in a script
BEGIN DECLARE x INT; SET VAR x = 1; END
--- a variable called var
BEGIN DECLARE var INT; SET var = 3; SELECT var; END
--- set a setting
BEGIN SET spark.sql.shuffle.partitions = 5; END
--- time zone
BEGIN SET TIME ZONE 'UTC'; END
--- set from a table
BEGIN DECLARE n INT DEFAULT 1; DECLARE m STRING; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT id, 'v' || id AS v FROM range(10);
  SET n = (SELECT count(*) FROM source) + n; SET (n, m) = (SELECT n + max(id), max(v) FROM source); SELECT n, m; END
--- set from a table without rows
BEGIN DECLARE n INT DEFAULT 1; DROP TABLE IF EXISTS empty_; CREATE TABLE empty_ (a INT) USING parquet; SET (n) = (SELECT a FROM empty_); SELECT n; SET n = (SELECT a FROM empty_); SELECT n; END
--- set from a table of more rows
BEGIN DECLARE n INT; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT id FROM range(3); SET (n) = (SELECT id FROM source); END
--- set from a table of more rows in an expression
BEGIN DECLARE n INT; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT id FROM range(3); SET n = (SELECT id FROM source); END
--- set from a table of too few columns
BEGIN DECLARE n INT; DECLARE m INT; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT 1 AS a; SET (n, m) = (SELECT a FROM source); END
--- set a wrong value from a table
BEGIN DECLARE n INT; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT 'nope' AS a; SET n = (SELECT a FROM source); END
--- set from a table that is not there
BEGIN DECLARE n INT; SET n = (SELECT max(a) FROM nowhere); END
--- set what is not there from a table
BEGIN DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT 1 AS a; SET nowhere = (SELECT max(a) FROM source); END
--- set several, one from a table, one to its default
BEGIN DECLARE n INT DEFAULT 4; DECLARE m INT; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT 1 AS a; SET m = (SELECT a FROM source), n = DEFAULT; SELECT n, m; END
--- set several, two from tables
BEGIN DECLARE n INT; DECLARE m ARRAY<INT>; DROP TABLE IF EXISTS source; CREATE TABLE source AS SELECT 1 AS a; SET n = (SELECT max(a) FROM source) + 1, m = array((SELECT a FROM source), 5); SELECT n, m; END
--- in a limit and an offset
BEGIN DECLARE n INT DEFAULT 2; SELECT id FROM range(10) ORDER BY id LIMIT n OFFSET n + 1; END
--- columns come first
BEGIN DECLARE id INT DEFAULT 99; SELECT id FROM range(2) ORDER BY id; END
--- in a where
BEGIN DECLARE low INT DEFAULT 3; SELECT count(*) FROM range(10) WHERE id >= low; END
--- in a subquery, a join and a window
BEGIN DECLARE n INT DEFAULT 2; SELECT a.id, sum(b.id + n) OVER (PARTITION BY a.id) AS s FROM range(3) a JOIN (SELECT id FROM range(5) WHERE id > n) b ON b.id > a.id + n ORDER BY 1, 2; END
--- in a lambda
BEGIN DECLARE n INT DEFAULT 2; SELECT transform(array(1, 2), x -> x * n); END
--- of structs
BEGIN DECLARE s STRUCT<a: INT, b: ARRAY<STRING>> DEFAULT named_struct('a', 1, 'b', array('x')); SET s = named_struct('a', s.a + 1, 'b', array('y', s.b[0])); SELECT s.a, s.b, s; END
--- of maps and arrays
BEGIN DECLARE m MAP<STRING, INT> DEFAULT map('a', 1); DECLARE a = array(1, NULL); SET m = map_concat(m, map('b', 2)); SET a = array_append(a, 3); SELECT m['b'], a, size(a); END
--- of many types
BEGIN DECLARE a BOOLEAN DEFAULT true; DECLARE b TINYINT DEFAULT 1; DECLARE c DECIMAL(20, 3) DEFAULT 1.5; DECLARE d BINARY DEFAULT X'00FF'; DECLARE e DATE DEFAULT DATE'0001-01-01'; DECLARE f TIMESTAMP DEFAULT TIMESTAMP'2026-03-29 02:30:00';
  DECLARE g TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ'2026-01-01 00:00:00.123456'; DECLARE h INTERVAL DAY TO SECOND DEFAULT INTERVAL '1 02:03:04.5' DAY TO SECOND; DECLARE i INTERVAL YEAR TO MONTH DEFAULT INTERVAL '1-2' YEAR TO MONTH;
  DECLARE j FLOAT DEFAULT 'NaN';
  SELECT a, b, c, d, CAST(e AS STRING), CAST(f AS STRING), g, CAST(h AS STRING), CAST(i AS STRING), j, typeof(c), typeof(h), typeof(i); END
--- of a collation
BEGIN DECLARE s STRING COLLATE UNICODE_CI DEFAULT 'Abc'; SELECT s = 'aBC', collation(s); END
--- of a variant
BEGIN DECLARE v VARIANT DEFAULT parse_json('{"a": [1, null]}'); SET v = parse_json('{"b": 2}'); SELECT CAST(v:b AS INT), to_json(v); END
--- of a calendar interval
BEGIN DECLARE i = make_interval(1, 2, 0, 3, 4, 5, 6.7); SELECT CAST(i AS STRING); END
--- of null
BEGIN DECLARE n = NULL; SELECT n, typeof(n); END
--- case counts spark.sql.caseSensitive=true
BEGIN DECLARE x INT DEFAULT 1; DECLARE X INT DEFAULT 2; SET X = X + 1; SELECT x, X; END
--- a session variable is seen
BEGIN EXECUTE IMMEDIATE 'DECLARE OR REPLACE seen INT DEFAULT 4'; SELECT seen, session.seen, system.session.seen; END
--- a session variable is set
BEGIN EXECUTE IMMEDIATE 'DECLARE OR REPLACE kept INT DEFAULT 4'; SET kept = kept + 1; SET session.kept = kept + 10; SELECT kept; END
-- then: SELECT kept
--- a session variable is shadowed
BEGIN EXECUTE IMMEDIATE 'DECLARE OR REPLACE both INT DEFAULT 4'; BEGIN DECLARE both INT DEFAULT 1; SET both = 2; SET session.both = 9; SELECT both, session.both; END; END
-- then: SELECT both
--- local and session variables set at once
BEGIN DECLARE mine INT; EXECUTE IMMEDIATE 'DECLARE OR REPLACE ours INT DEFAULT 4'; SET mine = ours, ours = 7; SELECT mine, ours; END
--- a local variable is not left
BEGIN DECLARE gone INT DEFAULT 4; SELECT gone; END
-- then: SELECT gone
--- a temporary view reads it anew
BEGIN DECLARE x INT DEFAULT 1; CREATE OR REPLACE TEMPORARY VIEW of_x AS SELECT x AS a; SET x = 2; SELECT a FROM of_x; END
--- a temporary view outlives its variable
BEGIN BEGIN DECLARE x INT DEFAULT 1; CREATE OR REPLACE TEMPORARY VIEW of_gone AS SELECT x AS a; SELECT * FROM of_gone; END; SELECT a FROM of_gone; END
--- a temporary view after the script
BEGIN DECLARE x INT DEFAULT 1; CREATE OR REPLACE TEMPORARY VIEW of_script AS SELECT x AS a; END
-- then: SELECT a FROM of_script
--- a view that stays
BEGIN DECLARE x INT DEFAULT 1; CREATE VIEW stays AS SELECT x AS a; END
--- a temporary function reads it
BEGIN DECLARE x INT DEFAULT 1; CREATE OR REPLACE TEMPORARY FUNCTION plus_x(n INT) RETURNS INT RETURN n + x; SET x = 5; SELECT plus_x(1); END
--- identifier of a table
BEGIN DECLARE t STRING DEFAULT 'named'; DROP TABLE IF EXISTS IDENTIFIER(t); CREATE TABLE IDENTIFIER(t) (a INT) USING parquet; INSERT INTO IDENTIFIER(t) VALUES (4), (5); SELECT sum(a) FROM IDENTIFIER(t); DROP TABLE IDENTIFIER(t); END
--- identifier of a column and a function
BEGIN DECLARE c STRING DEFAULT 'id'; DECLARE f STRING DEFAULT 'sum'; SELECT IDENTIFIER(f)(IDENTIFIER(c)) AS s FROM range(4); END
--- in an insert
BEGIN DECLARE n INT DEFAULT 1; DROP TABLE IF EXISTS target; CREATE TABLE target (a INT, b STRING) USING parquet;
  WHILE n <= 5 DO INSERT INTO target VALUES (n, 'v' || n); SET n = n + 1; END WHILE; SELECT * FROM target ORDER BY a; END
--- in create table as
BEGIN DECLARE n INT DEFAULT 3; DROP TABLE IF EXISTS made; CREATE TABLE made AS SELECT id + n AS a FROM range(2); SELECT * FROM made ORDER BY a; END
--- in insert overwrite
BEGIN DECLARE n INT DEFAULT 3; DROP TABLE IF EXISTS over; CREATE TABLE over AS SELECT 1 AS a; INSERT OVERWRITE over SELECT n; SELECT * FROM over; END
--- in values of a partition
BEGIN DECLARE d STRING DEFAULT 'x'; DROP TABLE IF EXISTS parts; CREATE TABLE parts (a INT, p STRING) USING parquet PARTITIONED BY (p); INSERT INTO parts SELECT 1, d; INSERT INTO parts SELECT 2, d || 'y'; SELECT * FROM parts ORDER BY a; END
--- without a value in an insert
BEGIN DROP TABLE IF EXISTS target; CREATE TABLE target (a INT) USING parquet; INSERT INTO target VALUES (nowhere); END
--- with a random default
BEGIN DECLARE r DOUBLE DEFAULT rand(); SELECT r = r AS same, r BETWEEN 0 AND 1 AS fits; END
--- dollars
BEGIN DECLARE x STRING DEFAULT '$' || '{a}'; SELECT x; END
