BEGIN
  DECLARE n INT DEFAULT 0;
  DECLARE missed INT DEFAULT 0;
  DECLARE twice BIGINT;
  CREATE DATABASE IF NOT EXISTS scripted;
  CREATE TABLE IF NOT EXISTS scripted.notes (id INT, drawn DOUBLE) USING parquet;
  WHILE n < :most DO
    BEGIN
      DECLARE EXIT HANDLER FOR TABLE_OR_VIEW_NOT_FOUND SET missed = missed + 1;
      INSERT INTO scripted.notes SELECT n, rand();
      SET n = n + 1;
      SELECT * FROM nowhere;
    END;
  END WHILE;
  SET twice = (SELECT count(*) * 2 FROM scripted.notes);
  SELECT n, missed, twice, (SELECT count(DISTINCT id) FROM scripted.notes) AS ids;
END
