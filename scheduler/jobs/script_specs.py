"""Specifications of scripts, and of the jobs that do their steps.

A step of a script is stored without what it has in common with its script: as a specification that names statements and
has no text. A step that was given with the script is stored whole.
"""

from typing import Final

from onager.errors import InvalidRequestError
from onager.job_settings import DEADLINE
from onager.protocol import onager_pb2 as pb
from onager.scheduler.jobs.job_specs import decode_spec, encode_spec

_NAME_CHARS: Final = 256


def spec_of_step(step: pb.ScriptStep, script: pb.JobSpec) -> pb.JobSpec:
    """Return the specification of a step that was given with *script*, whose settings and views it has, too."""
    spec = pb.JobSpec(name=step.name, conf=script.conf, py_files=step.py_files)
    spec.conf.update(step.conf)
    spec.conf.pop(DEADLINE, None)
    own = {view.name.lower() for view in step.views}
    spec.views.extend([*step.views, *(view for view in script.views if view.name.lower() not in own)])
    if step.HasField("sql"):
        spec.sql.CopyFrom(step.sql)
    elif step.HasField("python"):
        spec.python.CopyFrom(step.python)
    if step.HasField("sink"):
        spec.sink.CopyFrom(step.sink)
    return spec


def encoded_steps(script: pb.JobSpec) -> list[bytes]:
    """Return the specifications of a script's steps as stored, in order."""
    return [encode_spec(spec_of_step(step, script)) for step in script.script.steps]


def spec_of_child(script: bytes, step: bytes, stage_name: str) -> pb.JobSpec:
    """Return what the job of a step is to do, by the stored specifications of its script and of the step."""
    whole, spec = decode_spec(script), decode_spec(step)
    if spec.sql.statements and not spec.sql.text:
        sql, sink = spec.sql, spec.sink if spec.HasField("sink") else None
        spec = pb.JobSpec()
        spec.CopyFrom(whole)
        spec.ClearField("sink")
        spec.ClearField("labels")
        spec.conf.pop(DEADLINE, None)
        spec.sql.ClearField("statements")
        spec.sql.statements.extend(sql.statements)
        spec.sql.settled.extend(sql.settled)
        if sink is not None:
            spec.sink.CopyFrom(sink)
    spec.name = (f"{stage_name} of {whole.name}" if whole.name else stage_name)[:_NAME_CHARS]
    return spec


def check_script(script: pb.ScriptSpec) -> None:
    """Raise `InvalidRequestError` if the steps of *script* do not go together."""
    if not script.steps:
        raise InvalidRequestError("the script has no step")
    names: set[str] = set()
    for number, step in enumerate(script.steps, start=1):
        name = step.name or f"step {number}"
        if name in names:
            raise InvalidRequestError(f"two steps of the script are called {name!r}: give each a name of its own")
        names.add(name)
        for before in step.after:
            if not 1 <= before < number:
                raise InvalidRequestError(
                    f"step {number} of the script ({name}) waits for step {before}: a step waits for earlier ones"
                )
