"""Dataclasses for what is made once for each task: frozen for the type checker, and four times as quick to make.

A frozen dataclass sets each of its fields by a call, which for a task's event, output and metrics together costs more
than any other step between its report and the log. Nobody may assign to the fields of these classes either: mypy
refuses it.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["quick_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as quick_dataclass
else:
    from dataclasses import dataclass

    def quick_dataclass(*, frozen: bool, **options: Any) -> Any:
        """Return the decorator ``dataclass(frozen=True, ...)``, whose classes do not enforce it when they run."""
        assert frozen
        return dataclass(unsafe_hash=True, **options)
