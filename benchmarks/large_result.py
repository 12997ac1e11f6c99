"""``python -m benchmarks.large_result [--gb 10] --json FILE``: a large result on its way to the client, and who grows.

One executor of two slots makes the rows, the client reads them batch by batch and keeps none. Resident memory is that
of each process after a small result, and the most of it while the large one was made, and while it was fetched.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import psutil
import pyarrow.compute as pc

import onager
from benchmarks.cluster import Cluster
from onager.client import JobHandle

_ROW_BYTES: Final = 1036
"""A number of 8 bytes, an offset of 4, and 8 times 128 characters."""
_QUERY: Final = "SELECT id, repeat(sha2(CAST(id AS STRING), 512), 8) AS filler FROM range(0, {rows}, 1, 16)"
_CONF: Final = {"onager.fusion.maxBytes": "0"}
_SAMPLE_S: Final = 0.2
_MIB: Final = 1024 * 1024


def main() -> None:
    """Measure, print, write the JSON; exit code 1 unless every row came once."""
    options = _options()
    rows = int(options.gb * 1e9) // _ROW_BYTES
    with Cluster((2,)) as cluster, onager.connect(cluster.address) as client, Memory(cluster.pids) as memory:
        with memory.phase("small"):
            _read(_submit(client, 1000))
        with memory.phase("made"):
            start_s = time.perf_counter()
            job = _submit(client, rows)
            job.wait()
            made_s = time.perf_counter() - start_s
        with memory.phase("fetched"):
            start_s = time.perf_counter()
            count, total, size = _read(job)
            fetched_s = time.perf_counter() - start_s
        peaks = memory.peaks
    report = {
        "rows": count,
        "bytes": size,
        "made_s": round(made_s, 2),
        "fetched_s": round(fetched_s, 2),
        "mb_per_s": round(size / 1e6 / fetched_s, 1),
        "peak_mb": peaks,
    }
    print(json.dumps(report, indent=1))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if (count, total) == (rows, rows * (rows - 1) // 2) else 1)


class Memory:
    """Watches the resident memory of processes, each with its children but for other named ones; a context manager."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids | {"client": psutil.Process().pid}
        self._phase = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks: dict[str, dict[str, int]] = {}
        """MiB by phase and process; an executor's JVM apart from its agent."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Reckon what is seen meanwhile to *name*."""
        self.peaks[name] = {}
        self._phase = name
        try:
            yield
        finally:
            self._phase = ""

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            peaks = self.peaks.get(self._phase)
            if peaks is None:
                continue
            for name, size in self._sizes():
                peaks[name] = max(peaks.get(name, 0), size // _MIB)

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for name, pid in self._pids.items():
            process = psutil.Process(pid)
            yield name, process.memory_info().rss
            if name.startswith("executor"):
                for child in process.children():
                    if child.name() == "java":
                        yield f"{name} JVM", child.memory_info().rss


def _submit(client: onager.OnagerClient, rows: int) -> JobHandle:
    return client.sql(_QUERY.format(rows=rows), conf=_CONF, name=f"{rows} rows")


def _read(job: JobHandle) -> tuple[int, int, int]:
    """Return how many rows came, the sum of their numbers, and their bytes."""
    count = total = size = 0
    for batch in job.batches():
        count += batch.num_rows
        size += batch.nbytes
        total += pc.sum(batch.column("id")).as_py() or 0
    return count, total, size


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_result", description=__doc__)
    parser.add_argument("--gb", type=float, default=10.0, help="of rows, 10^9 bytes each")
    parser.add_argument("--json", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
