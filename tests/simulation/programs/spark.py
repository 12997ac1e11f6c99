"""What Spark answers for sessions of programs, without Spark: something else each time, and of what it was asked."""

import random  # noqa: TID251 seeded
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import (
    AnalyzePlanRequest,
    AnalyzePlanResponse,
    ConfigRequest,
    ExecutePlanRequest,
    ExecutePlanResponse,
    FetchErrorDetailsResponse,
)
from tests.simulation.data import JobPlan, draw_plan, outcome_of

if TYPE_CHECKING:
    from tests.simulation.programs.ledger import Ledger

_SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class SimulatedSpark:
    """Answers requests of sessions, and plans their jobs."""

    def __init__(self, ledger: "Ledger", rng: random.Random, passing: Callable[[], float]) -> None:
        """*passing*: how many commands fail for a reason that passes, from 0 to 1."""
        self._ledger = ledger
        self._rng = rng
        self._passing = passing

    def connect(self, call: pb.ConnectCall) -> pb.ConnectReply:
        """Return the reply to a request."""
        if call.HasField("describe"):
            return pb.ConnectReply(defaults=pb.ConnectDefaults(spark_version="4.3.0"))
        if self._rng.random() < self._passing():
            return pb.ConnectReply(failure=pb.ConnectFailure(message="not now", is_passing=True))
        if call.HasField("analyze"):
            label = AnalyzePlanRequest.FromString(call.analyze).tree_string.plan.root.decode()
            answer = AnalyzePlanResponse()
            answer.tree_string.tree_string = f"{label}={self._ledger.draw()}"
            return pb.ConnectReply(analyzed=answer.SerializeToString())
        applied = pb.ConnectApplied(changes=True, conf=call.session.conf, responses=[b""])
        if call.HasField("configure"):
            for pair in ConfigRequest.FromString(call.configure).operation.set.pairs:
                applied.conf[pair.key] = pair.value
            return pb.ConnectReply(applied=applied)
        return self._carried_out(ExecutePlanRequest.FromString(call.apply).plan.command.sql_command.sql, applied)

    def _carried_out(self, text: str, applied: pb.ConnectApplied) -> pb.ConnectReply:
        words, _, label = text.rpartition(" ")
        response = ExecutePlanResponse()
        response.sql_command_result.relation = f"{label}={self._ledger.draw()}".encode()
        match words.partition(" ")[0]:
            case "INSERT":
                return pb.ConnectReply(job=pb.ConnectJob(work="write", responses=[response.SerializeToString()]))
            case "VIEW":
                applied.put.add(kind="view", name=label, command=label.encode())
                applied.responses[:] = [response.SerializeToString()]
                return pb.ConnectReply(applied=applied)
            case _:
                failure = pb.ConnectFailure(error_class=NOT_FOUND, message=f"{self._ledger.draw()}: {text}")
                details = FetchErrorDetailsResponse(root_error_idx=0)
                details.errors.add(message=failure.message).spark_throwable.error_class = failure.error_class
                failure.details = details.SerializeToString()
                return pb.ConnectReply(failure=failure)

    def plan(self, job_id: str, call: pb.ConnectPlan, outcome: pb.PlanOutcome) -> JobPlan:
        """Plan the job of a call: another execution of a query has other rows, and a write publishes its own."""
        plan = ExecutePlanRequest.FromString(call.request).plan
        label = plan.command.sql_command.sql.rpartition(" ")[2] or plan.root[1:].decode()
        drawn = draw_plan(random.Random(label), 1)
        varying = tuple(replace(stage, is_deterministic=False) for stage in drawn.stages)
        drawn = replace(drawn, stages=varying, has_sink=call.work == "write", is_fused=False)
        outcome.CopyFrom(outcome_of(drawn))
        outcome.schema_json = _SCHEMA
        self._ledger.planned(job_id, label)
        return drawn
