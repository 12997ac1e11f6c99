--- an empty script
BEGIN END
--- not atomic
BEGIN NOT ATOMIC SELECT 1 AS a; END
--- the last query counts
BEGIN SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; END
--- a command after the query gives nothing
BEGIN SELECT 1 AS a; SHOW DATABASES; END
--- commands alone
BEGIN SHOW DATABASES; DESCRIBE FUNCTION abs; EXPLAIN SELECT 1; END
--- a query without rows
BEGIN SELECT id FROM range(0); END
--- many rows in order
BEGIN SELECT id, id % 7 AS m FROM range(100) ORDER BY m DESC, id; END
--- nested blocks
BEGIN BEGIN BEGIN SELECT 1 AS deep; END; END; END
--- comments and odd layout
BEGIN -- first; not END
  /* a ; b */ SELECT 'a;b' AS text, "END" AS end_;
  -- last
END
--- beyond the basic plane
BEGIN DECLARE smile STRING DEFAULT '😀😀'; SET smile = smile || '😀'; SELECT smile, length(smile); /* 😀 */ SELECT smile AS again; END
--- if
BEGIN IF 1 = 1 THEN SELECT 'yes'; END IF; END
--- if else
BEGIN IF 1 = 2 THEN SELECT 'yes'; ELSE SELECT 'no'; END IF; END
--- elseif
BEGIN DECLARE x INT DEFAULT 2; IF x = 1 THEN SELECT 1; ELSEIF x = 2 THEN SELECT 2; ELSEIF x = 2 THEN SELECT 3; ELSE SELECT 4; END IF; END
--- else if nested
BEGIN DECLARE x INT DEFAULT 3; IF x = 1 THEN SELECT 1; ELSE IF x = 3 THEN SELECT 'three'; END IF; END IF; END
--- if of an unknown value
BEGIN IF CAST(NULL AS BOOLEAN) THEN SELECT 1; ELSE SELECT 2; END IF; END
--- if of a null
BEGIN IF NULL THEN SELECT 1; END IF; END
--- if of a number
BEGIN IF 5 THEN SELECT 1; END IF; END
--- if of a text
BEGIN IF 'true' THEN SELECT 1; END IF; END
--- if with a subquery
BEGIN IF (SELECT max(id) FROM range(5)) = 4 THEN SELECT 'four'; END IF; END
--- if with exists
BEGIN IF EXISTS (SELECT 1 FROM range(3) WHERE id = 7) THEN SELECT 1; ELSE SELECT 'none'; END IF; END
--- if whose subquery has more rows
BEGIN IF (SELECT id > 1 FROM range(3)) THEN SELECT 1; END IF; END
--- if with a comment at its end
BEGIN IF 1 = 1 -- true
  THEN SELECT 'yes'; END IF; END
--- if of a column that is not there
BEGIN IF nowhere > 1 THEN SELECT 1; END IF; END
--- searched case
BEGIN DECLARE x INT DEFAULT 5; CASE WHEN x < 3 THEN SELECT 'small'; WHEN x < 10 THEN SELECT 'middle'; ELSE SELECT 'large'; END CASE; END
--- searched case without else
BEGIN CASE WHEN 1 = 2 THEN SELECT 1; END CASE; SELECT 'after'; END
--- searched case of a number
BEGIN CASE WHEN 1 = 2 THEN SELECT 1; WHEN 5 THEN SELECT 2; END CASE; END
--- simple case
BEGIN CASE 1 + 1 WHEN 1 THEN SELECT 'one'; WHEN 2 THEN SELECT 'two'; ELSE SELECT 'more'; END CASE; END
--- simple case with other types
BEGIN CASE 1 WHEN '1' THEN SELECT 'text'; ELSE SELECT 'none'; END CASE; END
--- simple case of null
BEGIN CASE NULL WHEN NULL THEN SELECT 1; ELSE SELECT 2; END CASE; END
--- simple case with a variable of the name of its value
BEGIN DECLARE c0 INT DEFAULT 7; CASE c0 WHEN c0 + 1 THEN SELECT 'wrong'; WHEN c0 THEN SELECT 'right'; END CASE; END
--- simple case with queries
BEGIN CASE (SELECT max(id) FROM range(3)) WHEN (SELECT min(id) FROM range(3)) THEN SELECT 0; WHEN (SELECT count(*) - 1 FROM range(3)) THEN SELECT 'max'; END CASE; END
--- simple case of a text and a number
BEGIN CASE 'x' WHEN 5 THEN SELECT 1; ELSE SELECT 2; END CASE; END
--- while
BEGIN DECLARE x INT DEFAULT 0; DECLARE s STRING DEFAULT ''; WHILE x < 4 DO SET s = s || x; SET x = x + 1; END WHILE; SELECT x, s; END
--- while that never begins
BEGIN WHILE 1 = 2 DO SELECT 'in'; END WHILE; SELECT 'out'; END
--- while in while
BEGIN DECLARE a INT DEFAULT 0; DECLARE b INT; DECLARE s STRING DEFAULT '';
  WHILE a < 3 DO SET b = 0; WHILE b < a DO SET s = s || a || b || ' '; SET b = b + 1; END WHILE; SET a = a + 1; END WHILE;
  SELECT s; END
--- while with leave
BEGIN DECLARE x INT DEFAULT 0; l: WHILE true DO SET x = x + 1; IF x = 5 THEN LEAVE l; END IF; END WHILE; SELECT x; END
--- while with iterate
BEGIN DECLARE x INT DEFAULT 0; DECLARE n INT DEFAULT 0;
  l: WHILE x < 6 DO SET x = x + 1; IF x % 2 = 0 THEN ITERATE l; END IF; SET n = n + x; END WHILE l; SELECT x, n; END
--- while of a number
BEGIN WHILE 5 DO SELECT 1; END WHILE; END
--- while of an unknown value
BEGIN DECLARE x INT; WHILE x < 3 DO SELECT 1; END WHILE; SELECT 'out'; END
--- labels in another case
BEGIN DECLARE x INT DEFAULT 0; Outer: WHILE true DO SET x = x + 1; IF x > 2 THEN LEAVE OUTER; END IF; END WHILE outer; SELECT x; END
--- leave the outer one
BEGIN DECLARE a INT DEFAULT 0; DECLARE b INT DEFAULT 0;
  o: WHILE a < 5 DO SET a = a + 1; i: WHILE true DO SET b = b + 1; IF b > 3 THEN LEAVE o; END IF; LEAVE i; END WHILE; END WHILE; SELECT a, b; END
--- iterate the outer one
BEGIN DECLARE a INT DEFAULT 0; DECLARE b INT DEFAULT 0;
  o: WHILE a < 5 DO SET a = a + 1; WHILE true DO SET b = b + a; ITERATE o; END WHILE; SET b = 1000; END WHILE; SELECT a, b; END
--- repeat
BEGIN DECLARE x INT DEFAULT 10; REPEAT SET x = x + 1; UNTIL x > 3 END REPEAT; SELECT x; END
--- repeat with leave and iterate
BEGIN DECLARE x INT DEFAULT 0; DECLARE n INT DEFAULT 0;
  r: REPEAT SET x = x + 1; IF x = 2 THEN ITERATE r; END IF; IF x = 7 THEN LEAVE r; END IF; SET n = n + x; UNTIL x >= 10 END REPEAT; SELECT x, n; END
--- iterate of repeat looks at its condition
BEGIN DECLARE x INT DEFAULT 0; r: REPEAT SET x = x + 1; ITERATE r; UNTIL x >= 3 END REPEAT; SELECT x; END
--- repeat of a number
BEGIN REPEAT SELECT 1; UNTIL 5 END REPEAT; END
--- loop
BEGIN DECLARE x INT DEFAULT 0; l: LOOP SET x = x + 1; IF x >= 3 THEN LEAVE l; END IF; END LOOP; SELECT x; END
--- loop with iterate
BEGIN DECLARE x INT DEFAULT 0; DECLARE n INT DEFAULT 0;
  l: LOOP SET x = x + 1; IF x < 4 THEN ITERATE l; END IF; SET n = x; LEAVE l; END LOOP l; SELECT x, n; END
--- leave a block
BEGIN a: BEGIN SELECT 1; LEAVE a; SELECT 2; END; END
--- leave an outer block
BEGIN a: BEGIN b: BEGIN SELECT 1; LEAVE a; SELECT 2; END b; SELECT 3; END a; SELECT 4 AS after_; END
--- leave a block within a loop
BEGIN DECLARE x INT DEFAULT 0; WHILE x < 3 DO b: BEGIN SET x = x + 1; LEAVE b; SET x = 100; END; END WHILE; SELECT x; END
--- iterate a block
BEGIN a: BEGIN ITERATE a; END; END
--- a label that is not there
BEGIN LEAVE nowhere; END
--- a label of a block that has ended
BEGIN a: BEGIN SELECT 1; END; LEAVE a; END
--- a label that ends another
BEGIN a: BEGIN SELECT 1; END b; END
--- an end label without a begin label
BEGIN BEGIN SELECT 1; END b; END
--- a label twice
BEGIN a: BEGIN a: BEGIN SELECT 1; END; END; END
--- the same label one after the other
BEGIN a: BEGIN SELECT 1; END; a: BEGIN SELECT 2 AS second; END; END
--- a label that is not allowed
BEGIN session: BEGIN SELECT 1; END; END
--- a label of the system
BEGIN sys1: BEGIN SELECT 1; END; END
--- a qualified label
BEGIN a.b: BEGIN SELECT 1; END; END
--- a label of the script itself
l: BEGIN SELECT 1; END
--- for
BEGIN DECLARE n BIGINT DEFAULT 0; FOR r AS SELECT id, id * 2 AS twice FROM range(5) DO SET n = n + r.id + twice; END FOR; SELECT n; END
--- for without a name
BEGIN DECLARE n BIGINT DEFAULT 0; FOR SELECT id FROM range(5) DO SET n = n + id; END FOR; SELECT n; END
--- for without rows
BEGIN FOR r AS SELECT 1 AS a WHERE false DO SELECT r.a; END FOR; SELECT 'none'; END
--- for gives the last row
BEGIN FOR r AS SELECT id FROM range(3) ORDER BY id DESC DO SELECT r.id, id; END FOR; END
--- for with the row itself
BEGIN FOR r AS SELECT 1 AS a DO SELECT r; END FOR; END
--- for in another case
BEGIN FOR R AS SELECT 1 AS Abc DO SELECT r.ABC, aBc; END FOR; END
--- for with leave and iterate
BEGIN DECLARE s STRING DEFAULT ''; l: FOR r AS SELECT id FROM range(9) ORDER BY id DO IF id = 2 THEN ITERATE l; END IF; IF id = 5 THEN LEAVE l; END IF; SET s = s || id; END FOR; SELECT s; END
--- for in for
BEGIN DECLARE s STRING DEFAULT ''; FOR a AS SELECT id FROM range(3) ORDER BY id DO FOR b AS SELECT id FROM range(2) ORDER BY id DO SET s = s || a.id || b.id || id || ' '; END FOR; END FOR; SELECT s; END
--- for and a variable of the same name
BEGIN DECLARE id INT DEFAULT 99; DECLARE s STRING DEFAULT ''; FOR r AS SELECT id FROM range(2) ORDER BY id DO SET s = s || id; END FOR; SELECT s, id; END
--- for sets its own column
BEGIN DECLARE s STRING DEFAULT ''; FOR r AS SELECT id FROM range(3) ORDER BY id DO SET id = id + 10; SET s = s || id || ' '; END FOR; SELECT s; END
--- for with two columns of a name
BEGIN FOR r AS SELECT 1 AS a, 2 AS a DO SELECT a; END FOR; END
--- for over variables
BEGIN DECLARE n INT DEFAULT 3; DECLARE s BIGINT DEFAULT 0; FOR r AS SELECT id FROM range(10) WHERE id < n DO SET n = 100; SET s = s + id; END FOR; SELECT s; END
--- for over many types
BEGIN FOR r AS SELECT true AS b, 1Y AS t, 2S AS s, 3 AS i, 4L AS l, 1.5F AS f, 2.5D AS d, 1.25BD AS e, 'x' AS x, X'01' AS y, DATE'2026-01-02' AS dt, TIMESTAMP'2026-01-02 03:04:05' AS ts,
  TIMESTAMP_NTZ'2026-01-02 03:04:05' AS tn, array(1, 2) AS a, map('k', 1) AS m, named_struct('u', 1, 'v', array('z')) AS st, CAST(NULL AS INT) AS n, INTERVAL '1-2' YEAR TO MONTH AS ym,
  INTERVAL '1 02:03:04' DAY TO SECOND AS ds
  DO SELECT b, t, s, i, l, f, d, e, x, y, dt, ts, tn, a, m, st, n, CAST(ym AS STRING), CAST(ds AS STRING), typeof(e), typeof(st), typeof(n); END FOR; END
--- for of a table that is not there
BEGIN FOR r AS SELECT * FROM nowhere DO SELECT 1; END FOR; END
--- for whose query fails
BEGIN FOR r AS SELECT 1 / (id - 1) AS a FROM range(3) DO SELECT 1; END FOR; END
--- for with a variable that is not allowed
BEGIN FOR session AS SELECT 1 AS a DO SELECT 1; END FOR; END
--- for with a label and a row of the same name
BEGIN r: FOR r AS SELECT 1 AS a DO SELECT a; END FOR; END
--- no end
BEGIN SELECT 1
--- no semicolon
BEGIN SELECT 1 END
--- something after the end
BEGIN SELECT 1; END; SELECT 2
--- no end of if
BEGIN IF 1 = 1 THEN SELECT 1; END; END
--- a statement that is none
BEGIN SELEC 1; END
--- signal
BEGIN SIGNAL SQLSTATE '45000'; END
--- a table that is not there
BEGIN SELECT * FROM nowhere; END
--- a query that fails
BEGIN SELECT 1 / 0; SELECT 2; END
--- what comes first stays
BEGIN DROP TABLE IF EXISTS stays; CREATE TABLE stays (a INT) USING parquet; INSERT INTO stays VALUES (1); SELECT 1 / 0; INSERT INTO stays VALUES (2); END
-- then: SELECT * FROM stays
--- scripts switched off spark.sql.scripting.enabled=false
BEGIN SELECT 1; END
