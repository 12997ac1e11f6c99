"""Outputs that jobs take of others: who may, what readers get, how long files stay, and who notices a loss."""

import json

import pytest
from structlog.testing import capture_logs

from onager.cli.events import what
from onager.client.events import JobEvent
from onager.errors import StateCorruptError
from onager.execution_graph import (
    OutputsTaken,
    TakenOutput,
    TaskOutput,
    encode_event,
)
from onager.ids import JobId
from onager.protocol import onager_pb2 as pb
from onager.scheduler.api.stage_lines import stage_info
from onager.scheduler.engine.clean_ups import Leftovers
from onager.scheduler.executors.manager import ExecutorManager
from onager.scheduler.jobs.blobs import digest_of
from onager.scheduler.jobs.job_heads import JobTerms
from onager.state_backend import Keyspace
from onager.state_backend.memory import MemoryStore
from tests.unit.scheduler.reuse_world import PRINTS, USER, Cluster, plan_of

A, B = JobId("a"), JobId("b")
DAY_MS = 86_400_000


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
async def cluster(store, clock):
    made = Cluster(store, clock, "s")
    await made.start()
    yield made
    await made.app.close()


async def test_a_job_takes_the_last_output_that_is_there(cluster):
    assert await cluster.run(A) == [1, 2, 3]
    assert cluster.head(A).reusable == {PRINTS[0]: 1, PRINTS[1]: 2}
    (launched,) = await cluster.begin(B)
    assert launched.stage_id == 3
    (location,) = launched.inputs
    assert (location.stage_id, location.job_id, location.of_stage_id) == (2, A, 2)
    assert [output.nonce for output in location.outputs] == ["a-2-0", "a-2-1"]
    assert cluster.head(B).reuses == (A,)
    stages = (await cluster.app.jobs.get(B)).graph.stages
    assert [stage_info(stage).name for stage in stages[1:]] == [
        "stage 1 (not needed: its rows are in what is reused)",
        "stage 2 (reused from a/2)",
        "stage 3",
    ]
    assert await cluster.finish([launched]) == [3]
    assert (cluster.head(B).reuses, cluster.head(B).reusable) == ((), {})
    assert await cluster.run("c") == [3], "what B took is A's to give"


@pytest.mark.parametrize(
    ("first", "first_terms", "second", "second_terms", "done"),
    [
        (A, USER, B, USER, [3]),
        (A, USER, B, USER.model_copy(update={"principal": "bob"}), [1, 2, 3]),
        (A, USER, B, JobTerms(principal="ann"), [1, 2, 3]),
        (A, JobTerms(principal="ann"), B, USER, [1, 2, 3]),
        (A, USER, B, JobTerms(principal="ann", reuse="off"), [1, 2, 3]),
        ("p.1", JobTerms(), "p.2", JobTerms(), [3]),
        ("p.1", JobTerms(), "q.1", JobTerms(), [1, 2, 3]),
        ("p.1", JobTerms(), "p.2", JobTerms(reuse="off"), [1, 2, 3]),
        (A, JobTerms(reuse="cluster"), B, JobTerms(reuse="cluster"), [3]),
    ],
    ids=["same user", "other", "asks not", "offers not", "off", "one script", "two", "a step that is off", "no users"],
)
async def test_who_may_take_what(cluster, first, first_terms, second, second_terms, done):
    await cluster.run(first, first_terms)
    assert await cluster.run(second, second_terms) == done


async def test_where_there_are_users_nobodys_jobs_take_nothing(store, clock, tmp_path):
    (tmp_path / "tokens").write_text("a-token-of-thirty-two-characters-000")
    (tmp_path / "tokens").chmod(0o600)
    cluster = Cluster(store, clock, "s", auth_token_file=tmp_path / "tokens")
    await cluster.start()
    await cluster.run(A, JobTerms(reuse="cluster"))
    assert await cluster.run(B, JobTerms(reuse="cluster")) == [1, 2, 3]
    await cluster.app.close()


async def test_what_has_no_fingerprint_or_may_differ_is_computed(cluster):
    await cluster.run(A)
    assert await cluster.run(B, plan=plan_of(PRINTS[0], digest_of(b"another"))) == [2, 3]
    assert await cluster.run("c", plan=plan_of(*PRINTS, deterministic=False)) == [1, 2, 3]
    assert await cluster.run("d", plan=plan_of("f" * 10_000, "nonsense")) == [1, 2, 3]


# ---------------------------------------------------------------- files


async def test_files_stay_for_others_and_for_as_long_as_somebody_reads_them(cluster):
    await cluster.run(A)
    results = ["3/0-a-3-0.arrow", "3/1-a-3-1.arrow"]
    assert await cluster.asked() == {A: ["1/", "2/", *results]}
    launched = await cluster.begin(B)
    cluster.clock.advance(DAY_MS)
    await cluster.app.retention.sweep()
    assert cluster.head(A).clean_up == "all"
    assert await cluster.asked() == {}, "B reads them"
    await cluster.finish(launched)
    assert (await cluster.asked())[A] == []
    assert await cluster.run("c") == [1, 2, 3]


async def test_files_do_not_stay_for_a_job_whose_record_is_damaged(cluster):
    await cluster.run(A)
    await cluster.begin(B)
    cluster.clock.advance(DAY_MS)
    await cluster.app.retention.sweep()
    backend = cluster.app._backend
    (chunk,) = (await backend.scan(Keyspace.GraphChunks, f"{B}/", limit=2)).items
    await backend.put(Keyspace.GraphChunks, chunk.key, b"rubbish")
    with pytest.raises(StateCorruptError):
        await cluster.app.jobs.load(B)
    assert (await cluster.asked())[A] == []


async def test_files_stay_until_it_is_known_who_has_taken_them(cluster):
    await cluster.run(A)
    await cluster.asked()
    cluster.clock.advance(DAY_MS)
    await cluster.app.retention.sweep()
    cluster.app.heads._watched = 0
    assert not await cluster.app.clean_ups.prepare(), "a job that has taken them may not be known here yet"
    assert list(await cluster.asked()) == [A]


async def test_files_that_are_read_are_no_leftovers(cluster):
    await cluster.run(A)
    await cluster.asked()
    launched = await cluster.begin(B)
    await cluster.app.heads.put([cluster.head(A).withdrawn()])
    await cluster.app.heads.put([cluster.head(A).model_copy(update={"clean_up": "none"})])
    await cluster.refresh()
    found = [pb.ExchangeFiles(job_id=A)]
    assert await cluster.app.clean_ups.leftovers(found, lambda _: True) == Leftovers([], [A])
    await cluster.finish(launched)
    (clean_up,) = (await cluster.app.clean_ups.leftovers(found, lambda _: True)).clean_ups
    assert clean_up.job_id == A


async def test_files_of_steps_stay_until_their_script_ends(cluster):
    spec = pb.JobSpec(script=pb.ScriptSpec(steps=[pb.ScriptStep(sql=pb.SqlScript(text="SELECT 1"))]))
    await cluster.app.service.SubmitJob(pb.SubmitJobRequest(job_id="p", spec=spec, client_id="c"), FakeContext())
    await cluster.run("p.1", JobTerms())
    assert (await cluster.asked())["p.1"][:2] == ["1/", "2/"]
    cluster.clock.advance(60_000)
    await cluster.app.retention.sweep()
    assert cluster.head("p.1").reusable
    await cluster.app.local.coordinator(JobId("p")).cancel_job("enough")
    await cluster.app.retention.sweep()
    assert not cluster.head("p.1").reusable
    assert (await cluster.asked())["p.1"][:1] == ["3/0-p_1-3-0.arrow"], "the result stays"


async def test_files_go_where_space_is_short(cluster, monkeypatch):
    await cluster.run(A)
    await cluster.asked()
    monkeypatch.setattr(ExecutorManager, "is_space_short", True)
    await cluster.app.retention.sweep()
    assert (await cluster.asked())[A] == ["3/0-a-3-0.arrow", "3/1-a-3-1.arrow"]


async def test_a_job_that_failed_offers_what_it_has_done(cluster):
    (first,) = await cluster.begin(A, plan=plan_of(*PRINTS, tasks=1))
    success = pb.TaskSuccess(output=pb.TaskOutput(nonce="n", shared=True, rows=1, bytes=1))
    (second,) = await cluster.report(first, success=success)
    await cluster.report(second, failure=pb.Failure(kind="user_error", message="no"))
    assert cluster.head(A).reusable == {PRINTS[0]: 1}
    assert await cluster.asked() == {A: ["1/"]}
    assert await cluster.run(B, plan=plan_of(*PRINTS, tasks=1)) == [2, 3]
    cluster.clock.advance(DAY_MS)
    await cluster.app.retention.sweep()
    assert (await cluster.asked())[A] == []


class FakeContext:
    def peer(self):
        return "ipv4:192.0.2.1:1"


# ---------------------------------------------------------------- lost


async def test_what_is_withdrawn_while_it_is_taken_is_computed(cluster, store, clock):
    await cluster.run(A)
    other = Cluster(store, clock, "t")
    await other.start()
    await other.app.heads.put([other.head(A).withdrawn()])
    assert cluster.head(A).reusable, "not seen here yet"
    (launched,) = await cluster.begin(B)
    assert launched.stage_id == 1
    assert not cluster.head(A).reusable
    await other.app.close()


async def test_what_is_removed_with_its_job_while_it_is_taken_is_computed(cluster):
    await cluster.run(A)
    await cluster.app._backend.delete(Keyspace.JobHeads, A)
    (launched,) = await cluster.begin(B)
    assert launched.stage_id == 1
    assert cluster.head(A) is None


async def test_what_has_changed_otherwise_is_taken_all_the_same(cluster, store, clock):
    await cluster.run(A)
    other = Cluster(store, clock, "t")
    await other.start()
    await other.app.heads.put([other.head(A).model_copy(update={"has_history": False})])
    (launched,) = await cluster.begin(B)
    assert launched.stage_id == 3
    await other.app.close()


async def test_what_cannot_be_read_is_computed_and_offered_to_nobody_any_more(cluster):
    await cluster.run(A)
    (launched,) = await cluster.begin(B)
    fetch = pb.FetchFailure(input_stage_id=2, input_partition=1, nonce="a-2-1")
    failure = pb.Failure(kind="fetch_failed", message="it is gone", fetch=fetch)
    with capture_logs() as logs:
        tasks = await cluster.report(launched, failure=failure)
    assert ("outputs_withdrawn", A) in {(entry["event"], entry.get("job_id")) for entry in logs}
    assert [task_set.stage_id for task_set in tasks] == [1]
    assert await cluster.finish(tasks) == [1, 2, 3]
    assert not cluster.head(A).reusable
    assert await cluster.run("c") == [3], "B has it now"
    assert cluster.app.jobs.cached(JobId("c")).graph.stages[2].spec.taken.job_id == B


@pytest.mark.parametrize(("stage_id", "nonce"), [(2, "another"), (1, "a-2-1"), (900, "a-2-1")])
async def test_what_another_plan_or_execution_missed_is_still_offered(cluster, stage_id, nonce):
    await cluster.run(A)
    (launched,) = await cluster.begin(B)
    fetch = pb.FetchFailure(input_stage_id=stage_id, input_partition=1, nonce=nonce)
    await cluster.report(launched, failure=pb.Failure(kind="fetch_failed", message="it is gone", fetch=fetch))
    assert cluster.head(A).reusable


# ---------------------------------------------------------------- reported


def test_the_event_is_reported_in_words():
    outputs = (TaskOutput(nonce="n", is_shared=True, rows=1, bytes=1),)
    taken = [TakenOutput(stage_id=n, job_id="a", of_stage_id=n + 1, fingerprint="f", outputs=outputs) for n in (1, 3)]
    fields = json.loads(encode_event(OutputsTaken(taken=tuple(taken), at_ms=1)))
    assert what(JobEvent(1, 0, "s", "outputs_taken", fields)) == "stage 1 from a/2, stage 3 from a/4"
