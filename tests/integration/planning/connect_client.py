"""A client of Spark Connect without a server: PySpark's own client makes the requests, and an executor answers them."""

import asyncio
import hashlib
from collections.abc import Callable
from math import inf
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import IllegalArgumentException
from pyspark.sql.connect import plan as plans
from pyspark.sql.connect.client.core import ConfigResult
from pyspark.sql.connect.conversion import proto_to_storage_level, storage_level_to_proto
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.proto import (
    AnalyzePlanRequest,
    AnalyzePlanResponse,
    Command,
    ConfigRequest,
    ExecutePlanRequest,
    ExecutePlanResponse,
    Plan,
)
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type
from pyspark.sql.pandas.types import to_arrow_schema

from onager.clock import SystemClock
from onager.errors import OnagerError
from onager.exchange_layout import connect_artifact
from onager.executor.exchange import carry_out, held_partitions, plan_publish
from onager.executor.exchange.seen_places import NO_PLACES, SeenPlaces
from onager.executor.spark.connect import ConnectRequests
from onager.executor.spark.deadlines import Deadlines
from onager.executor.spark.failures import from_exception
from onager.executor.spark.kernel.classes import REFUSED
from onager.ids import new_nonce
from onager.job_settings import PREFIX
from onager.manifests import TablePlaces
from onager.protocol import onager_pb2 as pb
from onager.protocol.spark_connect import ConfigRequest as OwnConfigRequest
from onager.scheduler.connect.checkpoints import begun
from onager.scheduler.connect.failures import from_reply
from onager.scheduler.connect.sessions import Session
from onager.scheduler.connect.settings import Defaults
from tests.support.catalog import MemoryCatalog
from tests.support.spark.one_executor import CUT, OneExecutor


class ConnectError(Exception):
    """What the client would get."""

    def __init__(self, failure: pb.ConnectFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure

    def getCondition(self) -> str:  # noqa: N802 - as PySpark calls it
        return from_reply(self.failure).error_class


class ConnectClient:
    """A session as a scheduler keeps it; every request is answered from what is stored of it."""

    def __init__(
        self,
        executor: OneExecutor,
        catalog: MemoryCatalog,
        deadlines: Deadlines | None = None,
        places: SeenPlaces = NO_PLACES,
    ) -> None:
        self._executor = executor
        self._catalog = catalog
        self._requests = ConnectRequests(
            executor.spark,
            str(executor.directory),
            spark_version=executor.spark.version,
            has_own_catalog=False,
            kernel=executor.runner.kernel,
            deadlines=deadlines or Deadlines(SystemClock(), inf),
            places=places,
        )
        self.spark = SparkSession("sc://127.0.0.1:1/;user_id=ann")
        # It would ask the server how large a plan is before it is compressed.
        self.spark.client._plan_compression_threshold = -1
        self.spark.client._plan_compression_algorithm = "NONE"
        self.spark.client.execute_command = self._executed  # type: ignore[method-assign]
        self.spark.client.to_table = self._fetched  # type: ignore[method-assign]
        self.spark.client.to_pandas = self._in_pandas  # type: ignore[method-assign]
        self.spark.client.schema = self.schema  # type: ignore[method-assign]
        self.spark.client.config = self._config  # type: ignore[method-assign]
        self._settings = Defaults(self._describe)
        self.stored = pb.ConnectSession(user="ann", session_id=self.spark.session_id)
        self.stages = 0
        """Those of the last job."""
        self.observed = b""

    def close(self) -> None:
        self.spark.client._channel.close()

    # ---------------------------------------------------------------- what a program does

    def schema(self, frame: Any) -> Any:
        request = AnalyzePlanRequest()
        request.schema.plan.CopyFrom(self._plan(frame))
        self.spark.client._update_request_with_user_context_extensions(request)
        return proto_schema_to_pyspark_data_type(self.analyze(request).schema.schema)

    def explain(self, frame: Any) -> str:
        request = AnalyzePlanRequest()
        request.explain.plan.CopyFrom(self._plan(frame))
        request.explain.explain_mode = AnalyzePlanRequest.Explain.EXPLAIN_MODE_SIMPLE
        return str(self.analyze(request).explain.explain_string)

    def rows(self, frame: Any) -> list[tuple[Any, ...]]:
        """Return the rows of *frame*, of a job that is cut at every exchange."""
        request = ExecutePlanRequest(plan=self._plan(frame))
        self.spark.client._update_request_with_user_context_extensions(request)
        return self._run(request, "")

    def view(self, name: str, frame: Any, *, is_global: bool = False) -> None:
        view = plans.CreateView(child=frame._plan, name=name, is_global=is_global, replace=True)
        self.command(view.command(session=self.spark.client))

    def drop(self, view: str) -> None:
        """Drop a view as `spark.catalog.dropTempView` does."""
        self.call(plans.DropTempView(view))

    def call(self, called: plans.LogicalPlan) -> list[ExecutePlanResponse]:
        """Carry out a call of spark.catalog."""
        return self._carry_out(ExecutePlanRequest(plan=self._plan(DataFrame(called, self.spark))))

    def function(self, name: str, function: Callable[..., Any], returns: Any) -> None:
        """Register a function as `spark.udf.register` does."""
        sent: list[ExecutePlanRequest] = []
        client = self.spark.client
        client._execute = sent.append  # type: ignore[method-assign]
        client.register_udf(function, returns, name)
        self.command(sent[0].plan.command)

    def table_function(self, name: str, function: type) -> None:
        """Register a table function as `spark.udtf.register` does."""
        sent: list[ExecutePlanRequest] = []
        client = self.spark.client
        client._execute = sent.append  # type: ignore[method-assign]
        client.register_udtf(function, None, name)
        self.command(sent[0].plan.command)

    def source(self, source: type) -> None:
        """Register a data source as `spark.dataSource.register` does."""
        sent: list[ExecutePlanRequest] = []
        client = self.spark.client
        client._execute = sent.append  # type: ignore[method-assign]
        client.register_data_source(source)
        self.command(sent[0].plan.command)

    def add(self, **files: bytes) -> None:
        """Add files as `spark.addArtifacts` does, contents by their names on the wire."""
        for name, content in files.items():
            digest = hashlib.sha256(content).hexdigest()
            path = self._executor.directory / connect_artifact(digest)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            self.stored.artifacts.add(name=name, digest=digest, size=len(content))

    def sql(self, text: str) -> list[ExecutePlanResponse]:
        """Carry out a statement as `spark.sql` does: by a command, or, where the executor says so, by a job."""
        command = Command()
        command.sql_command.input.sql.query = text
        return self.command(command)

    def checkpoint(self, frame: Any, **conf: str) -> Any:
        """Return the checkpoint of *frame*: its job has run, and published."""
        relation = self._executor.job_id
        job, applied = begun(Session(None, 0, self.stored), relation)  # type: ignore[arg-type]
        request = ExecutePlanRequest()
        request.plan.command.checkpoint_command.relation.CopyFrom(self._plan(frame).root)
        self._publish(self._planned(request, job.work, CUT | conf))
        self._apply(applied)
        # Without a session: it would tell the server when it is collected.
        return DataFrame(plans.CachedRemoteRelation(relation, None), self.spark)  # type: ignore[arg-type]

    def release(self, checkpoint: Any) -> None:
        """Tell that a checkpoint is not wanted any more, as the client does when it is collected."""
        self.command(plans.RemoveRemoteCachedRelation(checkpoint._plan).command(self.spark.client))

    def cache(self, frame: Any, level: StorageLevel | None = None) -> None:
        """Cache *frame* as `DataFrame.cache` does, or at a *level* as `DataFrame.persist` does."""
        request = AnalyzePlanRequest()
        request.persist.relation.CopyFrom(self._plan(frame).root)
        if level is not None:
            request.persist.storage_level.CopyFrom(storage_level_to_proto(level))
        self._apply(self._answer(persist=request.SerializeToString()).applied)

    def uncache(self, frame: Any) -> None:
        request = AnalyzePlanRequest()
        request.unpersist.relation.CopyFrom(self._plan(frame).root)
        self._apply(self._answer(persist=request.SerializeToString()).applied)

    def level(self, frame: Any) -> StorageLevel:
        request = AnalyzePlanRequest()
        request.get_storage_level.relation.CopyFrom(self._plan(frame).root)
        return proto_to_storage_level(self.analyze(request).get_storage_level.storage_level)

    def set(self, key: str, value: str) -> None:
        request = ConfigRequest()
        request.operation.set.pairs.add(key=key, value=value)
        self._apply(self._answer(configure=request.SerializeToString()).applied)

    # ---------------------------------------------------------------- requests

    def defaults(self) -> pb.ConnectDefaults:
        """Return what every session has by default."""
        return self._requests.answer(pb.ConnectCall(describe=True), self._catalog).defaults

    def analyze(self, request: AnalyzePlanRequest) -> AnalyzePlanResponse:
        return AnalyzePlanResponse.FromString(self._answer(analyze=request.SerializeToString()).analyzed)

    def command(self, command: Command) -> list[ExecutePlanResponse]:
        return self._carry_out(ExecutePlanRequest(plan=Plan(command=command)))

    def _executed(self, command: Command, *_: Any) -> tuple[None, dict[str, Any], None]:
        """Carry out what a writer or `spark.sql` asks the server for."""
        try:
            answer = self.command(command)
        except (OnagerError, IllegalArgumentException) as error:
            failure = from_exception(self._executor.runner.kernel, error)
            if not isinstance(error, OnagerError) and failure.error_class != REFUSED:
                raise
            raise ConnectError(pb.ConnectFailure(error_class=failure.error_class, message=failure.message)) from error
        results = [response.sql_command_result for response in answer if response.HasField("sql_command_result")]
        return None, {"sql_command_result": results[0].relation} if results else {}, None

    def _fetched(self, plan: Plan, *_: Any) -> tuple[pa.Table, Any, None]:
        """Return the rows that an action asks the server for."""
        schema = self.schema(plan)
        request = ExecutePlanRequest(plan=plan)
        self.spark.client._update_request_with_user_context_extensions(request)
        tables = self._executor.tables(self._planned(request, "", CUT))
        table = pa.concat_tables(tables) if tables else to_arrow_schema(schema).empty_table()
        return table.rename_columns(schema.names), schema, None

    def _in_pandas(self, plan: Plan, *_: Any, **__: Any) -> tuple[Any, None]:
        return self._fetched(plan)[0].to_pandas(), None

    def _config(self, operation: Any) -> ConfigResult:
        if operation.WhichOneof("op_type") in ("set", "unset"):
            request = ConfigRequest(operation=operation)
            self._apply(self._answer(configure=request.SerializeToString()).applied)
            return ConfigResult(pairs=[], warnings=[])
        asked = OwnConfigRequest.FromString(ConfigRequest(operation=operation).SerializeToString())
        session = Session(None, 0, self.stored)  # type: ignore[arg-type]
        answer = asyncio.run(self._settings.read(session, asked.operation))
        return ConfigResult([(p.key, p.value if p.HasField("value") else None) for p in answer.pairs], [])

    async def _describe(self) -> pb.ConnectDefaults:
        return self.defaults()

    def _carry_out(self, request: ExecutePlanRequest) -> list[ExecutePlanResponse]:
        self.spark.client._update_request_with_user_context_extensions(request)
        reply = self._answer(apply=request.SerializeToString())
        if reply.HasField("job"):
            self._run(request, reply.job.work)
            return [ExecutePlanResponse.FromString(response) for response in reply.job.responses]
        self._apply(reply.applied)
        return [ExecutePlanResponse.FromString(response) for response in reply.applied.responses]

    def _plan(self, frame: Any) -> Plan:
        return frame if isinstance(frame, Plan) else frame._plan.to_proto(self.spark.client)

    def _run(self, request: ExecutePlanRequest, work: str) -> list[tuple[Any, ...]]:
        outcome = self._planned(request, work, {} if work else CUT)
        self.stages = len(outcome.stages)
        self.observed = outcome.fused_observed
        if not work:
            return self._executor.run(outcome)
        self._catalog.commit(outcome, self._publish(outcome) if outcome.sink.path else None)
        return []

    def _publish(self, outcome: pb.PlanOutcome) -> TablePlaces | None:
        """Publish what a job writes; return where the rows of a table's partitions are."""
        sink = pb.Sink(schema_json=outcome.schema_json)
        sink.MergeFrom(outcome.sink)
        if outcome.HasField("fused_output"):
            outputs = [outcome.fused_output]
        else:
            last = outcome.stages[-1].stage_id
            with self._executor.running(outcome) as run:
                tasks = sorted(run.reports.items())
                outputs = [report.success.output for (stage_id, _), report in tasks if stage_id == last]
        held = held_partitions(self._catalog.read, sink.table) if sink.HasField("table") else None
        manifest = plan_publish(self._executor.job_id, sink, outputs, new_nonce(), held=held)
        carry_out(manifest)
        return manifest.table

    def _planned(self, request: ExecutePlanRequest, work: str, conf: dict[str, str]) -> pb.PlanOutcome:
        plan = pb.ConnectPlan(request=request.SerializeToString(), session=self.stored, work=work)
        own = {key: value for key, value in self.stored.conf.items() if key.startswith(PREFIX)}
        return self._executor.plan(pb.JobSpec(connect=plan, conf=conf | own))

    def _answer(self, **request: bytes) -> pb.ConnectReply:
        call = pb.ConnectCall(session=self.stored, deadline_ms=120_000, slots=2, **request)
        reply = self._requests.answer(call, self._catalog)
        if reply.HasField("failure"):
            raise ConnectError(reply.failure)
        return reply

    def _apply(self, applied: pb.ConnectApplied) -> None:
        """Take over what changed, as schedulers do: what is put comes last."""
        if not applied.changes:
            return
        gone = {(entry.kind, entry.name) for entry in (*applied.removed, *applied.put)}
        kept = [entry for entry in self.stored.entries if (entry.kind, entry.name) not in gone]
        revision = self.stored.revision + 1
        self.stored = pb.ConnectSession(
            user=self.stored.user,
            session_id=self.stored.session_id,
            revision=revision,
            conf=applied.conf,
            database=applied.database,
            entries=[*kept, *applied.put],
            artifacts=self.stored.artifacts,
        )
