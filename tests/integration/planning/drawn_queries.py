"""Queries drawn at random over the small tables, made so that plain Spark's rows are the only right ones.

Every relation has columns of known types. What would leave several results right is left out: limits are over all
columns, windows order by all of them, and doubles that were rounded are neither keys nor compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

MAX_ROWS = 30_000
DEPTH = 4
TABLES: dict[str, tuple[int, dict[str, str]]] = {
    "sales": (
        300,
        {
            "id": "int",
            "k": "int",
            "amount": "double",
            "price": "decimal",
            "name": "text",
            "day": "date",
            "maybe": "int",
        },
    ),
    "groups": (20, {"k": "int", "label": "text"}),
    "lines_csv": (100, {"id": "int", "k": "int"}),
    "lines_json": (100, {"id": "int", "k": "int"}),
    "lines_orc": (100, {"id": "int", "k": "int"}),
    "parts": (100, {"id": "int", "part": "int"}),
    "nothing": (1, {"id": "int", "k": "int"}),
    "range(0, 40, 1, 3)": (40, {"id": "int"}),
    "values (1, 'name 1'), (2, null), (null, 'group 2') as v(n, s)": (3, {"n": "int", "s": "text"}),
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.shuffle.partitions": ("1", "2", "3", "5"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "10485760"),
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": ("0", "33554432"),
    "spark.sql.codegen.wholeStage": ("true", "false"),
    "spark.sql.files.openCostInBytes": ("1", "4194304"),
    "spark.sql.files.maxPartitionBytes": ("2000", "134217728"),
}
JOINS = ("inner", "inner", "left", "right", "full", "left semi", "left anti")
HINTS = ("", "", "/*+ merge(b) */", "/*+ broadcast(b) */", "/*+ shuffle_hash(b) */", "/*+ broadcast(a) */")
COMPARED = ("=", "<", ">=", "<>")


@dataclass(frozen=True, slots=True)
class Relation:
    """A query in parentheses, or a table, with its columns and about how many rows it has at most."""

    text: str
    columns: dict[str, str]
    rows: int

    def of(self, *types: str) -> list[str]:
        """Return the names of the columns of *types*."""
        return [name for name, its in self.columns.items() if its in types]

    @property
    def keys(self) -> list[str]:
        """The columns that may be compared."""
        return [name for name, its in self.columns.items() if its != "rounded"]


@dataclass(frozen=True, slots=True)
class DrawnQuery:
    """A query and the settings to plan and run it under."""

    text: str
    conf: dict[str, str]


@st.composite
def queries(draw: st.DrawFn) -> DrawnQuery:
    """Draw a query and settings."""
    relation = _Drawing(draw).relation(DEPTH)
    conf = {key: draw(st.sampled_from(values)) for key, values in SETTINGS.items()}
    return DrawnQuery(f"select * from {relation.text}", conf)


class _Drawing:
    """One query being drawn; every column gets a name of its own."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def _one_of(self, items: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(list(items)))

    def _flip(self) -> bool:
        return bool(self._draw(st.booleans()))

    def _some(self, items: Sequence[str], least: int, most: int) -> list[str]:
        if not items:
            return []
        upper = min(most, len(items))
        return self._draw(
            st.lists(st.sampled_from(list(items)), min_size=min(least, upper), max_size=upper, unique=True)
        )

    def _name(self) -> str:
        self._count += 1
        return f"c{self._count}"

    # ------------------------------------------------------------ relations

    def relation(self, depth: int) -> Relation:
        """Draw a relation of up to *depth* steps over tables."""
        if depth == 0:
            return self._table()
        steps: list[Callable[[int], Relation]] = [
            self._filtered,
            self._projected,
            self._aggregated,
            self._joined,
            self._joined,
            self._combined,
            self._windowed,
            self._topped,
            self._compared_with_subquery,
            self._rearranged,
            self._exploded,
            self._shared,
        ]
        return self._one_of(steps)(depth - 1)  # type: ignore[no-any-return]

    def _table(self) -> Relation:
        table = self._one_of(list(TABLES))
        rows, columns = TABLES[table]
        names = {self._name(): column for column in columns}
        shown = ", ".join(f"{column} as {name}" for name, column in names.items())
        return Relation(
            f"(select {shown} from {table})", {name: columns[column] for name, column in names.items()}, rows
        )

    def _filtered(self, depth: int) -> Relation:
        inner = self.relation(depth)
        condition = self._condition(inner)
        if self._flip():
            condition = f"({condition}) {self._one_of(['and', 'or', 'and not'])} ({self._condition(inner)})"
        return Relation(f"(select * from {inner.text} where {condition})", inner.columns, inner.rows)

    def _projected(self, depth: int) -> Relation:
        inner = self.relation(depth)
        columns, shown = {}, []
        for _ in range(self._draw(st.integers(1, 4))):
            expression, its = self._expression(inner)
            name = self._name()
            columns[name] = its
            shown.append(f"{expression} as {name}")
        distinct = "distinct " if self._flip() and "rounded" not in columns.values() else ""
        return Relation(f"(select {distinct}{', '.join(shown)} from {inner.text})", columns, inner.rows)

    def _aggregated(self, depth: int) -> Relation:
        inner = self.relation(depth)
        keys = self._some(inner.keys, 0, 2)
        names = {self._name(): key for key in keys}
        columns = {name: inner.columns[key] for name, key in names.items()}
        shown = [f"{key} as {name}" for name, key in names.items()]
        for _ in range(self._draw(st.integers(1, 3))):
            expression, its = self._aggregate(inner)
            name = self._name()
            columns[name] = its
            shown.append(f"{expression} as {name}")
        grouping = self._one_of(["{}", "{}", "rollup({})", "cube({})", "grouping sets (({}), ())"])
        by = f" group by {grouping.format(', '.join(keys))}" if keys else ""
        having = f" having count(*) {self._one_of(COMPARED)} 3" if keys and self._flip() else ""
        rows = 2 * inner.rows if keys else 1
        return Relation(f"(select {', '.join(shown)} from {inner.text}{by}{having})", columns, rows)

    def _joined(self, depth: int) -> Relation:
        left, right = self.relation(depth), self.relation(depth - 1 if depth else 0)
        if left.rows * right.rows > 20 * MAX_ROWS:
            right = self._fewer(right)
        kind = self._one_of(JOINS)
        pairs = [(a, b) for a in left.keys for b in right.keys if left.columns[a] == right.columns[b]]
        equal = [f"a.{a} {self._one_of(['=', '=', '=', '<=>'])} b.{b}" for a, b in self._pairs(pairs)]
        if not equal and left.rows * right.rows > MAX_ROWS:
            return left
        conditions = equal or ["true"]
        if pairs and self._flip():
            a, b = self._one_of(pairs)
            conditions.append(f"a.{a} {self._one_of(COMPARED)} b.{b}")
        columns = left.columns if kind in {"left semi", "left anti"} else left.columns | right.columns
        on = " and ".join(conditions)
        text = f"(select {self._one_of(HINTS)} * from {left.text} a {kind} join {right.text} b on {on})"
        grown = left.rows if columns is left.columns else max(left.rows + right.rows, left.rows * right.rows // 5)
        return self._bounded(Relation(text, columns, grown))

    def _pairs(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        if not pairs:
            return []
        return self._draw(st.lists(st.sampled_from(pairs), min_size=0, max_size=2, unique=True))

    def _bounded(self, relation: Relation) -> Relation:
        return self._fewer(relation) if relation.rows > MAX_ROWS else relation

    def _fewer(self, relation: Relation) -> Relation:
        if len(relation.keys) < len(relation.columns) or not relation.columns:
            shown = ", ".join(relation.keys) or "1 as one"
            columns = {key: relation.columns[key] for key in relation.keys} or {"one": "int"}
            relation = Relation(f"(select {shown} from {relation.text})", columns, relation.rows)
        by = ", ".join(relation.columns)
        return Relation(f"(select * from {relation.text} order by {by} limit 60)", relation.columns, 60)

    def _combined(self, depth: int) -> Relation:
        left, right = self.relation(depth), self.relation(depth - 1 if depth else 0)
        types = [its for its in left.columns.values() if right.of(its)]
        if not types:
            return left
        operation = self._one_of(
            ["union all", "union all", "union", "intersect", "except", "intersect all", "except all"]
        )
        if operation != "union all":
            types = [its for its in types if its != "rounded"]
        if not types:
            return left
        wanted = types[:3]
        columns = {self._name(): its for its in wanted}
        one = ", ".join(f"{self._one_of(left.of(its))} as {name}" for name, its in columns.items())
        other = ", ".join(self._one_of(right.of(its)) for its in wanted)
        text = f"((select {one} from {left.text}) {operation} (select {other} from {right.text}))"
        return Relation(f"(select * from {text})", columns, left.rows + right.rows)

    def _windowed(self, depth: int) -> Relation:
        inner = self.relation(depth)
        if len(inner.keys) < len(inner.columns):
            return inner
        order = ", ".join(f"{key} {self._one_of(['', 'desc', 'nulls last'])}" for key in inner.keys)
        by = self._some(inner.keys, 0, 2)
        partition = f"partition by {', '.join(by)} " if by else ""
        function = self._one_of(["row_number()", "rank()", "dense_rank()", "ntile(3)", "count(*)"])
        name = self._name()
        text = f"(select *, {function} over ({partition}order by {order}) as {name} from {inner.text})"
        relation = Relation(text, inner.columns | {name: "int"}, inner.rows)
        if self._flip():
            text = f"(select * from {text} where {name} <= {self._draw(st.integers(1, 5))})"
            relation = Relation(text, relation.columns, relation.rows)
        return relation

    def _topped(self, depth: int) -> Relation:
        inner = self.relation(depth)
        if len(inner.keys) < len(inner.columns):
            return inner
        order = ", ".join(f"{key} {self._one_of(['', 'desc'])}" for key in inner.keys)
        limit = self._one_of(["", f" limit {self._draw(st.integers(0, 40))}"])
        offset = self._one_of(["", f" offset {self._draw(st.integers(0, 40))}"])
        return Relation(f"(select * from {inner.text} order by {order}{limit}{offset})", inner.columns, inner.rows)

    def _compared_with_subquery(self, depth: int) -> Relation:
        outer, inner = self.relation(depth), self.relation(depth - 1 if depth else 0)
        pairs = [(a, b) for a in outer.keys for b in inner.keys if outer.columns[a] == inner.columns[b]]
        if not pairs:
            return outer
        a, b = self._one_of(pairs)
        condition = self._one_of(
            [
                f"o.{a} {self._one_of(COMPARED)} (select max({b}) from {inner.text})",
                f"o.{a} in (select {b} from {inner.text})",
                f"o.{a} not in (select {b} from {inner.text})",
                f"exists (select 1 from {inner.text} i where i.{b} = o.{a})",
                f"not exists (select 1 from {inner.text} i where i.{b} = o.{a})",
                f"(o.{a} is null or exists (select 1 from {inner.text} i where i.{b} = o.{a}))",
                f"(select count(*) from {inner.text} i where i.{b} = o.{a}) > 1",
            ]
        )
        return Relation(f"(select * from {outer.text} o where {condition})", outer.columns, outer.rows)

    def _rearranged(self, depth: int) -> Relation:
        inner = self.relation(depth)
        by = ", ".join(["3", *self._some(inner.keys, 1, 2)])
        hint = self._one_of(
            [f"repartition({by})", "repartition(2)", "coalesce(1)", "coalesce(2)", f"rebalance({by[3:] or '2'})"]
        )
        return Relation(f"(select /*+ {hint} */ * from {inner.text})", inner.columns, inner.rows)

    def _exploded(self, depth: int) -> Relation:
        inner = self.relation(depth)
        numbers = inner.of("int")
        if not numbers or inner.rows > MAX_ROWS // 2:
            return inner
        column, name = self._one_of(numbers), self._name()
        outer = self._one_of(["", "outer "])
        array = self._one_of([f"array({column}, 7)", f"if({column} % 2 = 0, array({column}), null)"])
        text = f"(select * from {inner.text} lateral view {outer}explode({array}) as {name})"
        return Relation(text, inner.columns | {name: "int"}, 2 * inner.rows)

    def _shared(self, depth: int) -> Relation:
        """A relation that is read twice, so that its exchange may be reused."""
        inner = self._bounded(self._aggregated(depth))
        if not inner.keys or inner.rows > 300:
            return inner
        key, other = self._one_of(inner.keys), self._name()
        text = f"(with t as {inner.text} select x.*, y.{key} as {other} from t x join t y on x.{key} = y.{key})"
        return Relation(text, inner.columns | {other: inner.columns[key]}, inner.rows * 3)

    # ------------------------------------------------------------ expressions

    def _condition(self, inner: Relation) -> str:
        if not inner.keys:
            return "true"
        column = self._one_of(inner.keys)
        if self._flip():
            return f"{column} {self._one_of(COMPARED)} {self._literal(inner.columns[column])}"
        return f"{column} is {self._one_of(['', 'not '])}null"

    def _literal(self, its: str) -> str:
        number = self._draw(st.integers(0, 30))
        match its:
            case "text":
                return f"'name {number % 11}'"
            case "date":
                return f"date_add(date'2024-01-01', {number})"
            case "boolean":
                return "true"
        return str(number)

    def _expression(self, inner: Relation) -> tuple[str, str]:
        column = self._one_of(list(inner.columns))
        its = inner.columns[column]
        match its:
            case "int":
                forms = ["{} % 7", "{} + 3", "-{}", "coalesce({}, 0)", "if({} > 9, 1, null)", "abs({}) % 5 + 1"]
            case "text":
                forms = ["upper({})", "concat({}, '!')", "substr({}, 1, 6)", "coalesce({}, '')"]
            case "date":
                forms = ["date_add({}, 3)", "trunc({}, 'month')", "last_day({})"]
            case "double":
                forms = ["{} + 0.5D", "-{}", "if({} > 40, {}, null)"]
            case _:
                forms = ["{}"]
        return self._one_of(["{}", *forms]).format(column, column), its

    def _aggregate(self, inner: Relation) -> tuple[str, str]:
        column = self._one_of(inner.keys) if inner.keys else None
        if column is None:
            return "count(*)", "int"
        its = inner.columns[column]
        forms = [
            ("count(*)", "int"),
            ("count({})", "int"),
            ("count(distinct {})", "int"),
            ("max({})", its),
            ("min({})", its),
        ]
        if its == "int":
            forms += [
                ("sum({}) % 1000", "int"),
                ("sum(distinct {}) % 1000", "int"),
                ("avg({})", "rounded"),
                ("bit_xor({})", "int"),
            ]
        if its == "double":
            forms += [("avg({})", "rounded"), ("sum({})", "rounded")]
        if its != "boolean":
            forms.append(("approx_count_distinct({})", "int"))
        form, made = self._one_of(forms)
        if self._flip() and "approx" not in form and "%" not in form:
            form += f" filter (where {self._condition(inner)})"
        return form.format(column), made
