"""How metrics are merged: by the rule that each field declares, as in ``Annotated[int, SPARSE, SUM]``."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

_Metrics = TypeVar("_Metrics")


class MergeRule(Enum):
    """What becomes of the values of a field: a statement that merges *other*'s into a variable of the field's name."""

    SUM = "{0} += other.{0}"
    MAX = "{0} = other.{0} if other.{0} > {0} else {0}"
    SKETCH = "{0} = {0}.merge(other.{0})"


SUM = MergeRule.SUM
MAX = MergeRule.MAX
SKETCH = MergeRule.SKETCH
"""For a distribution (`latency`)."""


def merging(kind: type[_Metrics]) -> Callable[[_Metrics, Iterable[_Metrics]], _Metrics]:
    """Return the function that merges a value of the dataclass *kind* with others.

    It is compiled, since it runs for every report, and is twice as fast as a loop over the fields. `TypeError` when a
    field does not have exactly one rule.
    """
    hints = get_type_hints(kind, include_extras=True)
    rules = {field.name: _rule(kind, field.name, hints[field.name]) for field in fields(kind)}  # type: ignore[arg-type]
    lines = [
        "def merge(first, others):",
        *[f"    {name} = first.{name}" for name in rules],
        "    for other in others:",
        *[f"        {rule.value.format(name)}" for name, rule in rules.items()],
        f"    return kind({', '.join([f'{name}={name}' for name in rules])})",
    ]
    names: dict[str, Any] = {"kind": kind}
    exec("\n".join(lines), names)  # noqa: S102 made of the names of fields
    merge: Callable[[_Metrics, Iterable[_Metrics]], _Metrics] = names["merge"]
    return merge


def _rule(kind: type, name: str, hint: Any) -> MergeRule:
    declared = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    rules = [rule for rule in declared if isinstance(rule, MergeRule)]
    if len(rules) != 1:
        raise TypeError(f"{kind.__name__}.{name} must declare one rule of merging, not {len(rules)}: {declared}")
    return rules[0]
