"""Scripts: several jobs that wait for each other, submitted as one."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onager.client.job import JobHandle
from onager.client.spec import View, job_spec, python_message, sink_message
from onager.errors import InvalidRequestError
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_STEPS

PathLike = str | os.PathLike[str]
Submit = Callable[[pb.JobSpec, str | None], JobHandle]


class Step:
    """One step of a script, made by `Script.sql` or `Script.function`."""

    def __init__(self, script: "Script", spec: pb.JobSpec) -> None:
        self.script = script
        self.spec = spec
        self.waits_for: dict[Step, None] = {}

    @property
    def name(self) -> str:
        """The step's name, which no other step of the script has."""
        return self.spec.name

    def __repr__(self) -> str:
        return f"Step({self.name!r})"

    def after(self, *steps: "Step") -> "Step":
        """Have the step wait for *steps* of the same script, too; return it."""
        for step in steps:
            if step.script is not self.script:
                raise InvalidRequestError(f"{self.name} cannot wait for {step.name}, a step of another script")
            self.waits_for[step] = None
        return self


class Script:
    """A script that is being made: `submit` sends it, as a single job."""

    def __init__(self, submit: Submit, name: str, options: Mapping[str, Any]) -> None:
        """Begin a script; *options* are parameters of `job_spec` for all of it."""
        self._submit = submit
        self._name = name
        self._options = options
        self._steps: list[Step] = []

    def sql(
        self,
        text: str,
        *,
        after: Sequence[Step] = (),
        name: str | None = None,
        params: Mapping[str, object] | Sequence[object] | None = None,
        views: Mapping[str, View | PathLike] | None = None,
        conf: Mapping[str, object] | None = None,
        output: PathLike | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's own word for it
        mode: str = "error",
        output_options: Mapping[str, str] | None = None,
        py_files: Sequence[PathLike] = (),
    ) -> Step:
        """Add a step that runs a script of SQL statements, and waits for the steps *after* which it comes.

        The script may write one dataset. The other parameters are those of `OnagerClient.sql`.
        """
        spec = job_spec(
            sql=text,
            name=self._named(name),
            views=views or {},
            conf=conf or {},
            py_files=py_files,
            sink=None if output is None else sink_message(output, format, mode, output_options or {}),
            params=params,
        )
        return self._add(spec, after)

    def function(
        self,
        function: PathLike | Callable[..., Any],
        *,
        after: Sequence[Step] = (),
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        views: Mapping[str, View | PathLike] | None = None,
        conf: Mapping[str, object] | None = None,
        output: PathLike | None = None,
        format: str = "parquet",  # noqa: A002 - Spark's own word for it
        mode: str = "error",
        output_options: Mapping[str, str] | None = None,
        py_files: Sequence[PathLike] = (),
    ) -> Step:
        """Add a step that runs a function of the session; the parameters are those of `OnagerClient.python`."""
        message, _ = python_message(function, args or {})
        spec = job_spec(
            python=message,
            name=self._named(name),
            views=views or {},
            conf=conf or {},
            py_files=py_files,
            sink=None if output is None else sink_message(output, format, mode, output_options or {}),
        )
        return self._add(spec, after)

    def submit(self, job_id: str | None = None) -> JobHandle:
        """Submit the script, and return its job once it is stored durably.

        Steps that wait for no other run at once. The result of the job is that of the last step, in the order in which
        steps were added. Raises `InvalidRequestError` for a script without steps, and for steps that wait for each
        other.
        """
        if not self._steps:
            raise InvalidRequestError("the script has no step: add one with sql() or function()")
        if len(self._steps) > MAX_STEPS:
            raise InvalidRequestError(f"the script has {len(self._steps):,} steps, more than {MAX_STEPS:,}")
        ordered = _ordered(self._steps)
        numbers = {step: number for number, step in enumerate(ordered, start=1)}
        script = pb.ScriptSpec(steps=[_message(step, numbers) for step in ordered])
        spec = job_spec(script=script, name=self._name or f"script of {len(ordered)} steps", **self._options)
        return self._submit(spec, job_id)

    def _named(self, name: str | None) -> str:
        found = name or f"step {len(self._steps) + 1}"
        if any(step.name == found for step in self._steps):
            raise InvalidRequestError(f"the script has a step {found!r} already: give each a name of its own")
        return found

    def _add(self, spec: pb.JobSpec, after: Sequence[Step]) -> Step:
        step = Step(self, spec).after(*after)
        self._steps.append(step)
        return step


def _ordered(steps: Sequence[Step]) -> list[Step]:
    """Return *steps* so that each comes after those that it waits for; otherwise in the order of their making."""
    ordered: dict[Step, None] = {}
    left = list(steps)
    while left:
        free = next((step for step in left if all(before in ordered for before in step.waits_for)), None)
        if free is None:
            raise InvalidRequestError(f"steps wait for each other: {_cycle(left)}")
        ordered[free] = None
        left.remove(free)
    return [*ordered]


def _cycle(steps: Sequence[Step]) -> str:
    """Return the names of steps that wait for each other, each for the one after it."""
    path = [steps[0]]
    while True:
        following = next(before for before in path[-1].waits_for if before in steps)
        if following in path:
            found = [*path[path.index(following) :], following]
            return " waits for ".join(step.name for step in found)
        path.append(following)


def _message(step: Step, numbers: Mapping[Step, int]) -> pb.ScriptStep:
    spec = step.spec
    message = pb.ScriptStep(
        name=spec.name,
        views=spec.views,
        conf=spec.conf,
        py_files=spec.py_files,
        after=sorted(numbers[before] for before in step.waits_for),
    )
    for field in ("sql", "python", "sink"):
        if spec.HasField(field):
            getattr(message, field).CopyFrom(getattr(spec, field))
    return message
