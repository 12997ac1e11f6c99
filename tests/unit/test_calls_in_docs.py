"""The calls that docs/architecture.md follows from file to file are there, under the names that it gives."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^## Two calls, from file to file$(.*?)^## ", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([\w/]+\.py)`\s+`(\w+)\.(\w+)`")


def methods_of(path: Path) -> set[tuple[str, str]]:
    return {
        (of.name, method.name)
        for of in ast.parse(path.read_text()).body
        if isinstance(of, ast.ClassDef)
        for method in of.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_method_on_the_way_of_a_call_is_where_the_docs_say() -> None:
    (section,) = SECTION.findall((ROOT / "docs" / "architecture.md").read_text())
    named = NAMED.findall(section)
    assert len(named) >= 20
    assert [each for each in named if each[1:] not in methods_of(ROOT / each[0])] == []
