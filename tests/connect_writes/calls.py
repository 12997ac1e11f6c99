"""Calls drawn from a seed: writers of DataFrames, and statements of SQL with an action behind them."""

import random  # noqa: TID251 - by a seed
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TABLES: Final = ("t1", "t2", "shop.t3")
VIEW: Final = "seen"
PATHS: Final = ("p1", "p2")
DIRECTORY: Final = "{dir}"
"""Stands for a directory that only one side has."""
ACTIONS: Final = ("show()", "collect()", "count()", "toPandas()")
_FORMATS: Final = ("parquet", "parquet", "orc", "json", "csv", "PARQUET")
_ODD_FORMATS: Final = ("text", "noop", "nosuch", "binaryFile")
_TOO_MANY_BUCKETS: Final = 200_000
"""Spark refuses them. Of zero buckets PySpark's Connect client says nothing to its server, so that is another call."""
_MODES: Final = ("append", "append", "overwrite", "overwrite", "error", "ignore")
_COLUMNS: Final = {"a": "INT", "b": "STRING", "k": "INT"}
_VALUES: Final = {
    "INT": ("1", "2", "NULL"),
    "BIGINT": ("5", "3000000000"),
    "STRING": ("'x'", "''", "'7'", "NULL"),
    "DOUBLE": ("0.5D",),
    "DATE": ("DATE'2026-01-31'",),
    "ARRAY<INT>": ("array(1, 2)",),
    "STRUCT<x: INT>": ("named_struct('x', 1)",),
    "BINARY": ("X'01'",),
    "INTERVAL DAY": ("INTERVAL '1' DAY",),
    "VOID": ("NULL",),
}
SETTINGS: Final = {
    "spark.sql.caseSensitive": ("true", "false", "false"),
    "spark.sql.storeAssignmentPolicy": ("ANSI", "LEGACY", "STRICT"),
    "spark.sql.sources.partitionOverwriteMode": ("static", "dynamic"),
    "spark.sql.ansi.enabled": ("true", "false"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """An expression of Python over ``spark`` and ``F``, and the tables, views and paths that it may change."""

    text: str
    touches: tuple[str, ...]
    what: str
    """Its kind: a writer's last method, or the statement's verb."""


class Drawn:
    """Draws calls, the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def call(self) -> Call:
        """Draw one."""
        kind = self._random.choices(("table", "insert", "path", "v2", "sql", "set"), (26, 12, 14, 12, 34, 2))[0]
        match kind:
            case "table":
                return self._to_table()
            case "insert":
                return self._insert()
            case "path":
                return self._to_path()
            case "v2":
                return self._v2()
            case "set":
                key = self._one(list(SETTINGS))
                return Call(f"spark.conf.set({key!r}, {self._one(SETTINGS[key])!r})", (), "set")
            case _:
                return self._statement()

    # ---------------------------------------------------------------- writers

    def _to_table(self) -> Call:
        table = self._one(TABLES)
        touches: tuple[str, ...] = (table,)
        text = f"{self._frame()}.write{self._format(0.4)}{self._mode()}{self._layout(0.2)}"
        if self._may(0.06):
            path = self._one(PATHS)
            touches = (table, f"path:{path}")
            text += f".option('path', '{DIRECTORY}/{path}')"
        return Call(f"{text}.saveAsTable({table!r})", touches, "saveAsTable")

    def _insert(self) -> Call:
        table = self._one((*TABLES, VIEW))
        overwrite = self._one(("", "", ", overwrite=True"))
        text = f"{self._frame()}.write{self._format(0.2)}{self._mode(0.3)}{self._layout(0.1)}"
        return Call(f"{text}.insertInto({table!r}{overwrite})", (table,), "insertInto")

    def _to_path(self) -> Call:
        path = self._one(PATHS)
        text = f"{self._frame()}.write{self._format(1)}{self._mode()}{self._layout(0.25)}"
        if self._may(0.1):
            text += ".option('compression', 'gzip')"
        return Call(f"{text}.save('{DIRECTORY}/{path}')", (f"path:{path}",), "save")

    def _v2(self) -> Call:
        table, text = self._one(TABLES), f"{self._frame()}.writeTo"
        how = self._one(("create", "create", "append", "append", "overwritePartitions", "replace", "createOrReplace"))
        text += f"({table!r})"
        if how in {"create", "replace", "createOrReplace"}:
            text += f".using({self._one(_FORMATS[:5])!r})"
            if self._may(0.3):
                by = self._one(("'k'", "'k'", "'b'", "'nope'", "'k', 'b'", "F.bucket(2, 'k')", "F.years('k')"))
                columns = by if by.startswith("F.") else ", ".join(f"F.col({each})" for each in by.split(", "))
                text += f".partitionedBy({columns})"
            if self._may(0.2):
                text += ".tableProperty('owner', 'ann')"
        return Call(f"{text}.{how}()", (table,), how)

    def _format(self, chance: float) -> str:
        if not self._may(chance):
            return ""
        return f".format({self._one(_ODD_FORMATS if self._may(0.08) else _FORMATS)!r})"

    def _mode(self, chance: float = 0.85) -> str:
        return f".mode({self._one(_MODES)!r})" if self._may(chance) else ""

    def _layout(self, chance: float) -> str:
        text = ""
        if self._may(chance):
            text += f".partitionBy({self._some(('k', 'k', 'b', 'a', 'K', 'nope'))})"
        if self._may(chance / 3):
            text += f".bucketBy({self._one((2, 2, 3, _TOO_MANY_BUCKETS))}, {self._some(('a', 'a', 'k', 'nope'))})"
        if self._may(chance / 5):
            text += f".sortBy({self._some(('b', 'a'))})"
        return text

    def _frame(self) -> str:
        columns = self._schema()
        casts = ", ".join(f"CAST(c{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(columns))
        names = ", ".join(f"c{at}" for at in range(len(columns)))
        rows = [self._row(columns) for _ in range(self._random.randint(1, 3))]
        where = " WHERE false" if self._may(0.1) else ""
        return f'spark.sql("SELECT {casts} FROM VALUES {", ".join(rows)} AS v({names}){where}")'

    def _row(self, columns: Sequence[tuple[str, str]]) -> str:
        return f"({', '.join(self._one(_VALUES[kind]) for _, kind in columns)})"

    def _schema(self) -> list[tuple[str, str]]:
        """Draw columns: mostly those that tables have, in their order."""
        columns = list(_COLUMNS.items())
        match self._random.choices(range(8), (72, 6, 4, 4, 4, 4, 4, 2))[0]:
            case 1:
                self._random.shuffle(columns)
            case 2:
                columns.pop(self._random.randrange(3))
            case 3:
                columns.insert(self._random.randrange(4), self._one((("e", "DOUBLE"), ("e", "INT"))))
            case 4:
                columns.append((self._one(("a", "A", "b", "K")), "INT"))
            case 5:
                kind = self._one(list(_VALUES))
                columns[self._random.randrange(3)] = (self._one(list(_COLUMNS)), kind)
            case 6:
                columns = [(name.upper() if self._may(0.5) else name, kind) for name, kind in columns]
            case 7:
                columns = [(self._one(("x", "`a b`", "`a.b`", "`a;b`")), "INT"), *columns[1:]]
        return columns

    # ---------------------------------------------------------------- statements

    def _statement(self) -> Call:
        table = self._one(TABLES)
        make = self._random.choices(list(_STATEMENTS), [_OFTEN.get(name, 2) for name in _STATEMENTS])[0]
        text, touches = _STATEMENTS[make], [table]
        places = {
            "t": table,
            "other": self._one(TABLES),
            "format": self._one(_FORMATS[:5]),
            "if": self._one(("", "IF NOT EXISTS ")),
            "exists": self._one(("", "IF EXISTS ")),
            "by": self._one(
                ("", "", " PARTITIONED BY (k)", " PARTITIONED BY (nope)", " CLUSTERED BY (a) INTO 2 BUCKETS")
            ),
            "into": self._one(("INTO", "INTO", "OVERWRITE")),
            "name": self._one(("", "", " BY NAME")),
            "columns": self._one(("", "", " (k, b, a)", " (a, b)", " (a, a, b)", " (a, nope)")),
            "part": self._one(("", " PARTITION (k = 1)", " PARTITION (k)", " PARTITION (nope = 1)")),
            "k": self._one(("1", "2", "7")),
            "view": VIEW,
            "path": self._one(PATHS),
            "query": self._query(),
            "dir": DIRECTORY,
        }
        if "{view}" in text:
            touches.append(VIEW)
        if "{path}" in text:
            touches.append(f"path:{places['path']}")
        return Call(f'spark.sql("{text.format(**places)}").{self._one(ACTIONS)}', tuple(touches), make)

    def _query(self) -> str:
        columns = self._schema()
        values = ", ".join(f"CAST({self._one(_VALUES[kind])} AS {kind}) AS {name}" for name, kind in columns)
        return self._one(
            (f"SELECT {values}", f"SELECT {values}", "SELECT a, b, k FROM {t}".replace("{t}", self._one(TABLES)))
        )

    # ---------------------------------------------------------------- drawing

    def _one(self, among: Sequence) -> object:
        return self._random.choice(among)

    def _some(self, among: Sequence[str]) -> str:
        count = self._random.choice((1, 1, 1, 2))
        return ", ".join(repr(self._one(among)) for _ in range(count))

    def _may(self, chance: float) -> bool:
        return self._random.random() < chance


_OFTEN: Final = {
    **dict.fromkeys(("create", "ctas", "insert", "insert values"), 6),
    "insert plainly": 10,
    **dict.fromkeys(("drop", "rename column", "drop database", "database", "set", "refresh", "show tables"), 1),
}
_STATEMENTS: Final = {
    "create": "CREATE TABLE {if}{t} (a INT, b STRING, k INT) USING {format}{by}",
    "create twice": "CREATE TABLE {if}{t} (a INT, A STRING) USING {format}",
    "ctas": "CREATE TABLE {if}{t} USING {format}{by} AS {query}",
    "ctas at": "CREATE TABLE {t} USING {format} LOCATION '{dir}/{path}' AS {query}",
    "insert": "INSERT {into} {t}{part}{columns}{name} {query}",
    "insert plainly": "INSERT {into} {t} {query}",
    "insert values": "INSERT {into} {t} VALUES (1, 'v', 2), (3, NULL, 1)",
    "insert two": "INSERT INTO {t}{part} VALUES (1, 'v')",
    "insert directory": "INSERT OVERWRITE DIRECTORY '{dir}/{path}' USING {format} {query}",
    "drop": "DROP TABLE {exists}{t}",
    "drop view as table": "DROP TABLE {exists}{view}",
    "truncate": "TRUNCATE TABLE {t}",
    "truncate partition": "TRUNCATE TABLE {t} PARTITION (k = {k})",
    "add columns": "ALTER TABLE {t} ADD COLUMNS (n DOUBLE)",
    "rename column": "ALTER TABLE {t} RENAME COLUMN b TO c",
    "add partition": "ALTER TABLE {t} ADD {if}PARTITION (k = {k})",
    "drop partition": "ALTER TABLE {t} DROP {exists}PARTITION (k = {k})",
    "rename partition": "ALTER TABLE {t} PARTITION (k = {k}) RENAME TO PARTITION (k = 9)",
    "properties": "ALTER TABLE {t} SET TBLPROPERTIES ('p' = '1')",
    "comment": "COMMENT ON TABLE {t} IS 'a comment'",
    "view": "CREATE VIEW {if}{view} AS SELECT a, k FROM {t}",
    "replace view": "CREATE OR REPLACE VIEW {view} AS {query}",
    "drop view": "DROP VIEW {exists}{view}",
    "database": "CREATE DATABASE {if}shop",
    "drop database": "DROP DATABASE {exists}shop",
    "show tables": "SHOW TABLES",
    "show partitions": "SHOW PARTITIONS {t}",
    "show columns": "SHOW COLUMNS IN {t}",
    "show properties": "SHOW TBLPROPERTIES {t} ('p')",
    "describe": "DESCRIBE {t}",
    "repair": "MSCK REPAIR TABLE {t}",
    "analyze": "ANALYZE TABLE {t} COMPUTE STATISTICS NOSCAN",
    "refresh": "REFRESH TABLE {t}",
    "set": "SET spark.sql.shuffle.partitions = 3",
    "temporary view": "CREATE OR REPLACE TEMPORARY VIEW fleeting AS {query}",
    "drop temporary view": "DROP VIEW IF EXISTS fleeting",
    "select": "SELECT * FROM {t}",
    "select view": "SELECT count(*) FROM {view}",
    "delete": "DELETE FROM {t} WHERE a = 1",
    "mistake": "INSERT INTO {t} SELEC 1",
}
