"""Files and functions stay short enough to be read at once.

Counted are physical lines: of a function those from its ``def`` (in Java, from its name) to its last line, with its
docstring.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
_JAVA_NO_CODE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)
_JAVA_METHOD = re.compile(
    r"(?<!\bnew )(?<!\brecord )(?<![.\w])(\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:throws\s[\w.,\s]+)?$"
)
_JAVA_STATEMENTS = {"if", "for", "while", "switch", "catch", "synchronized", "try"}


def our_files() -> Iterator[Path]:
    """Yield our Python and Java files, scripts without a suffix included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_symlink() or not path.is_file() or GENERATED.search(name):
            continue
        if path.suffix in {".py", ".java"} or (not path.suffix and _is_python_script(path)):
            yield path


def _is_python_script(path: Path) -> bool:
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline()) is not None


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the first line and the number of lines of each function."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def java_methods(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the first line and the number of lines of each method and constructor."""
    code = _JAVA_NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    opened: list[tuple[str, int] | None] = []
    header_at = 0
    for found in re.finditer(r"[{};]", code):
        if found.group() == "{":
            header = _JAVA_METHOD.search(code, header_at, found.start())
            is_method = header is not None and header.group(1) not in _JAVA_STATEMENTS
            opened.append((header.group(1), code.count("\n", 0, header.start(1)) + 1) if is_method else None)
        elif found.group() == "}" and (method := opened.pop()) is not None:
            name, line = method
            yield name, line, code.count("\n", 0, found.start()) + 2 - line
        header_at = found.end()
    assert not opened


def test_no_file_is_long():
    lengths = {path: len(path.read_text().splitlines()) for path in our_files()}
    assert len(lengths) > 1000
    assert [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > MAX_FILE_LINES] == []


def test_no_function_is_long():
    lengths = {}
    for path in our_files():
        functions = java_methods if path.suffix == ".java" else python_functions
        for name, line, lines in functions(path.read_text()):
            lengths[f"{path.relative_to(ROOT)}:{line} {name}"] = lines
    assert len(lengths) > 10_000
    assert [f"{name}: {n}" for name, n in lengths.items() if n > MAX_FUNCTION_LINES] == []


@pytest.mark.parametrize("lines", [1, 7])
def test_methods_of_java_are_found(lines):
    body = "\n".join('if (x) { call(() -> { y("}{"); }); } // }' for _ in range(lines))
    text = f"""\
/** A class {{ of one method. */
final class Example {{
  private static final int[] TABLE = {{1, 2}};
  private final Runnable task = new Task(3) {{
    @Override
    public void run() {{
    }}
  }};

  @SuppressWarnings({{"unchecked", "rawtypes"}})
  static <T> Map<String, T> method(
      Supplier<T> first, char second) throws java.io.IOException, Other {{
{body}
  }}
}}
"""
    assert list(java_methods(text)) == [("run", 6, 2), ("method", 11, lines + 3)]
