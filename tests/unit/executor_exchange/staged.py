"""Staged datasets, and file systems that stop in the middle."""

from pathlib import Path

from onager.executor.exchange.publish import Files, plan_publish
from onager.ids import Nonce
from onager.manifests import Manifest
from onager.protocol import onager_pb2 as pb

JOB = "job-1"
NEW = {"part-00000-n0.parquet": "zero", "part-00001-n1.parquet": "one"}
OLD = {"part-00000-old.parquet": "old", "_SUCCESS": ""}


class Crash(BaseException):
    """The process died here."""


class Stopping(Files):
    """Dies before the call number *after* (from 0)."""

    def __init__(self, after: int) -> None:
        self.left = after

    def _step(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1

    def rename(self, source, target):
        self._step()
        super().rename(source, target)

    def make_directory(self, path):
        self._step()
        super().make_directory(path)

    def write(self, path, content):
        self._step()
        super().write(path, content)

    def remove_tree(self, path):
        self._step()
        super().remove_tree(path)


def stage(base: Path, mode: str, *, old: bool) -> tuple[Manifest, Path]:
    target = base / "out"
    if old:
        target.mkdir(parents=True)
        for name, text in OLD.items():
            (target / name).write_text(text)
    staging = base / f".out.onager-{JOB}"
    outputs = []
    for nonce, (name, text) in zip(("n0", "n1"), NEW.items(), strict=True):
        (staging / nonce).mkdir(parents=True)
        (staging / nonce / name).write_text(text)
        outputs.append(pb.TaskOutput(nonce=nonce, rows=1, files=[f"{nonce}/{name}"]))
    (staging / "zombie").mkdir()
    (staging / "zombie" / "part-00000-zombie.parquet").write_text("never wanted")
    sink = pb.Sink(path=str(target), format="parquet", mode=mode)
    return plan_publish(JOB, sink, outputs, Nonce("abc")), target
