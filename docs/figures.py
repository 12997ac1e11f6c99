"""Puts the figures of docs/figures.json into README and docs/performance.md: ``python -m docs.figures``.

A page has blocks, ``<!-- figures: NAME -->`` to ``<!-- end -->``, each written by the function of that name. What was
not measured, or failed, says so in its place. `benchmarks.figures` measures.
"""

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.figures import FILE, ROOT
from docs.figure_blocks import BLOCKS, Figures, NotThereError

PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "performance.md")
BLOCK: Final = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_NO_CAPTION: Final = ("run", "readme")


def load() -> dict[str, Any]:
    """Return the file; nothing if there is none."""
    content: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return content


def rendered(text: str, content: Mapping[str, Any]) -> str:
    """Return a page with its blocks as *content* gives them."""
    return BLOCK.sub(lambda found: f"{found[1]}{block(found[2], content)}\n{found[4]}", text)


def block(name: str, content: Mapping[str, Any]) -> str:
    """Return the text of a block, with the commands that measured what it says."""
    figures = Figures(content)
    try:
        text = BLOCKS[name](figures)
    except NotThereError as why:
        return f"*{str(why)[0].upper()}{str(why)[1:]}.*"
    commands = dict.fromkeys(figures.quoted)
    if name in _NO_CAPTION or not commands:
        return text
    return f"{text}\n\n{'; '.join(f'`{each}`' for each in commands)}"


def main() -> int:
    """Write the pages."""
    content = load()
    for page in PAGES:
        text = page.read_text()
        if (new := rendered(text, content)) != text:
            page.write_text(new)
            sys.stdout.write(f"{page.relative_to(ROOT)} written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
