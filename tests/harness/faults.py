"""What tests plant in a run: classes in Java, compiled when they are first asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "planted"
_classes: dict[tuple[Any, str], Any] = {}


def planted(jvm: Any, name: str) -> Any:
    """Return a new object of a class in `SOURCES`."""
    if (jvm, name) not in _classes:
        compiler = jvm.java_class("org.codehaus.janino.SimpleCompiler")()
        compiler.setParentClassLoader(jvm.java_class("java.lang.Thread").currentThread().getContextClassLoader())
        compiler.cook((SOURCES / f"{name}.java").read_text())
        _classes[jvm, name] = compiler.getClassLoader().loadClass(f"planted.{name}")
    return _classes[jvm, name].newInstance()


def fault(kind: str, stage: int) -> Callable[[Any], Any]:
    """Return what plants a fault in the first task of a stage (reading everything: in all of its tasks)."""
    return lambda jvm: planted(jvm, "Fault").of(kind, stage)


def failures(stage: int, *, alone: bool = False) -> Callable[[Any], Any]:
    """Return what lets the first task of a stage fail, and after it the others of a stage that is not the last."""
    return lambda jvm: planted(jvm, "Failures").of(stage, alone)


class Gate:
    """Holds the tasks of a stage before their first row until those that write have no room; counts what they write.

    *held*: that stage, 0 for none; *for_good*: until they are stopped. *stage*, *tasks*: who writes, through channels
    of *frames* and *bytes_*.
    """

    def __init__(
        self, *, held: int, stage: int, tasks: int, frames: int, bytes_: int = 1 << 40, for_good: bool = False
    ) -> None:
        self._arguments = (held, stage, tasks, frames, bytes_, for_good)
        self._planted: Any = None

    def __call__(self, jvm: Any) -> Any:
        self._planted = planted(jvm, "Gate").of(*self._arguments)
        return self._planted

    @property
    def is_stuck(self) -> bool:
        """Whether all tasks that write have no room left."""
        return self._planted is not None and bool(self._planted.isStuck())

    @property
    def most_frames(self) -> list[int]:
        """By channel, how many frames it had taken when the gate opened; at the end, where it did not."""
        return [int(n) for n in self._planted.frames()]

    @property
    def most_bytes(self) -> list[int]:
        """By channel, how many bytes it had taken when the gate opened; at the end, where it did not."""
        return [int(n) for n in self._planted.bytes()]
