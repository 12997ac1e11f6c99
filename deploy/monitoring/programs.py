"""Where Prometheus and promtool are: on PATH, or where set-up has unpacked them."""

import shutil
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ADVICE: Final = "run make setup-dev, or install it (apt: prometheus)"


def find(name: str) -> str | None:
    """Return the path of *name*, ``prometheus`` or ``promtool``; None if it is not there."""
    return shutil.which(name) or shutil.which(name, path=str(ROOT / ".venv" / "prometheus" / "usr" / "bin"))
