"""Spark Connect, put together from the parts of a scheduler."""

from functools import partial

from onager.scheduler.api.service import SchedulerService
from onager.scheduler.api.submitting import Submissions
from onager.scheduler.connect.artifacts import Artifacts
from onager.scheduler.connect.checkpoints import Checkpoints
from onager.scheduler.connect.ended_calls import EndedCalls
from onager.scheduler.connect.mended_sessions import put_back
from onager.scheduler.connect.operations import Operations
from onager.scheduler.connect.program_calls import ProgramCalls, ProgramStore
from onager.scheduler.connect.program_matches import ProgramMatches
from onager.scheduler.connect.program_retries import ProgramRetries
from onager.scheduler.connect.running import RunningOperations
from onager.scheduler.connect.scripts import ConnectScripts
from onager.scheduler.connect.service import SparkConnectService
from onager.scheduler.connect.sessions import Sessions
from onager.scheduler.engine.bundles import Env, Store
from onager.scheduler.engine.caches import Caches
from onager.scheduler.engine.retention import Retention
from onager.scheduler.executors.connect_calls import ConnectCalls
from onager.scheduler.executors.executor_requests import ExecutorRequests
from onager.scheduler.executors.place_admission import PlaceAdmission


def spark_connect(
    env: Env,
    store: Store,
    service: SchedulerService,
    submissions: Submissions,
    running: RunningOperations,
    requests: ExecutorRequests,
    places: PlaceAdmission,
    retention: Retention,
    caches: Caches,
) -> SparkConnectService:
    """Return the service for Spark's own clients."""
    settings, backend, clock = env.settings, store.backend, env.clock
    sessions = Sessions(backend, clock, retention_s=settings.connect_session_retention_s, on_uncached=caches.drop)
    programs = service.programs
    program_store = ProgramStore(backend, clock, programs.files, programs.usages)
    matches = ProgramMatches(program_store, store.blobs)
    calls = ProgramCalls(program_store, matches.match)
    hosts = partial(service.executors.taking_work, programs=True)
    scripts = ConnectScripts(programs, calls, service.of_programs, service.queries, hosts)
    operations = Operations(
        backend,
        clock,
        sessions,
        ConnectCalls(requests),
        submissions,
        service.queries,
        running,
        store.heads,
        service.results,
        scripts,
        settings.exchange_dir,
        service,
    )
    artifacts = Artifacts(sessions, settings.exchange_dir, places.check_exchange)
    checkpoints = Checkpoints(settings.exchange_dir, store.heads, clock)
    ended = EndedCalls(calls, operations)
    retention.settle_calls = ended.settle
    running.close_program = service.hosted.close
    programs.is_matching = matches.is_matching
    programs.restore = partial(put_back, backend)
    service.hosted.check_end = matches.check_end
    service.hosted.go_on = ProgramRetries(backend, programs, running, ended).go_on
    return SparkConnectService(sessions, operations, running, artifacts, checkpoints, programs, calls, caches)
