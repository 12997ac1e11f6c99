"""Write the alert rules and the dashboard: ``python -m deploy.monitoring``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.monitoring.alerts import rules
from deploy.monitoring.dashboard import dashboard

HERE: Final = Path(__file__).resolve().parents[1] / "prometheus"
FILES: Final[dict[str, Callable[[], str]]] = {"rules.yml": rules, "dashboard.json": dashboard}


def main() -> int:
    """Write the files; return 1 if one of them was not as it should be."""
    changed = 0
    for name, content in FILES.items():
        path, text = HERE / name, content()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"deploy/prometheus/{name} written\n")
            changed = 1
    return changed


if __name__ == "__main__":
    sys.exit(main())
