"""The steps of a script with several effects: a job of its own does each of them.

A step is stored without what it has in common with its script: it names the statements to run, the one with its effect
last. The job of a step also runs the statements before it that change only the session, so each step is planned in a
session of its own that is as it would have been; and those that change the catalog since the step before. A statement
that gave a variable its value does not run again: it could give another one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import json_format

from onager.errors import PlanningError
from onager.executor.spark import plan_codec
from onager.executor.spark.planning.encoded import shortened
from onager.protocol import onager_pb2 as pb
from onager.protocol.field_limits import MAX_STATEMENTS, MAX_STEPS


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A statement with an effect, with changes of the catalog before it, or the query at the end."""

    name: str
    text: str
    statements: tuple[int, ...]
    """The numbers of those that its job runs: those of the session, what changes the catalog before it, and itself."""
    is_query: bool
    """Whether it gives the rows of the script's result."""
    settled: Mapping[int, Mapping[str, str]]
    """By the numbers of statements that gave variables their values: the variables after it, which each job has."""


@dataclass(frozen=True, slots=True)
class ScriptSteps:
    """What a script with several effects does, one after the other."""

    steps: Sequence[ScriptStep]


def check_statements(count: int) -> None:
    """Raise `PlanningError` for a script with more statements than one with several effects may have."""
    if count > MAX_STATEMENTS:
        raise PlanningError(
            f"the script has {count:,} statements, and several effects, with which it may have {MAX_STATEMENTS:,}: "
            "submit it as several scripts"
        )


def steps_outcome(script: ScriptSteps, output: pb.Sink | None) -> pb.PlanOutcome:
    """Return the steps of a script as what planning found; *output* is the job's, for the rows of its query."""
    if len(script.steps) > MAX_STEPS:
        raise PlanningError(
            f"the script has {len(script.steps):,} statements with effects, more than {MAX_STEPS:,}: "
            "submit it as several scripts"
        )
    if output is not None and not script.steps[-1].is_query:
        raise PlanningError(
            "the job has an output, and its script gives no rows: end it with a query, or leave out the output"
        )
    outcome = pb.PlanOutcome(plan="\n".join(f"{step.name}: {_line(step.text)}" for step in script.steps))
    for stage_id, step in enumerate(script.steps, start=1):
        settled = [pb.SettledStatement(number=number, variables=values) for number, values in step.settled.items()]
        sql = pb.SqlScript(statements=step.statements, settled=settled)
        spec = pb.JobSpec(sql=sql, sink=output if step.is_query else None)
        content = json_format.MessageToJson(spec, preserving_proto_field_name=True, indent=None).encode()
        digest = plan_codec.digest(content)
        outcome.blobs.add(digest=digest, content=content)
        outcome.stages.add(
            stage_id=stage_id,
            name=step.name,
            work=pb.Work.STEP,
            plan_digest=digest,
            partitions=1,
            inputs=[pb.StageInput(stage_id=stage_id - 1, read="all")] if stage_id > 1 else [],
            output=pb.OutputLayout(kind="control"),
            plan=shortened(step.text),
        )
    outcome.plan = shortened(outcome.plan)
    return outcome


def _line(text: str) -> str:
    return " ".join(text[:400].split())[:120]
