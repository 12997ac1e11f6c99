"""TPC-H data: Parquet files by ``tpcgen-cli``, made once for each scale factor."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
DATA_DIR = Path(__file__).parents[2] / "var" / "tpch"


def generate(scale_factor: float, below: Path = DATA_DIR) -> Path:
    """Return the directory with one ``TABLE.parquet`` per table; made if it is not there yet.

    It appears under its final name only when it is whole, so an interrupted run leaves nothing that looks finished.
    """
    target = below / f"sf{scale_factor:g}"
    if target.is_dir():
        return target
    below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=below, prefix="making-") as scratch:
        made = Path(scratch) / "data"
        command = [_generator(), "tpch", "parquet", "-s", f"{scale_factor:g}", f"--output-dir={made}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    return target


def _generator() -> str:
    beside = Path(sys.executable).parent / "tpcgen-cli"
    found = str(beside) if beside.is_file() else shutil.which("tpcgen-cli")
    if found is None:
        sys.exit("tpcgen-cli is not installed: run make setup")
    return found


def views(data: Path) -> dict[str, str]:
    """Return the tables of *data* as views by name."""
    return {table: str(data / f"{table}.parquet") for table in TABLES}
