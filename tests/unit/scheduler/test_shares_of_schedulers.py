"""Two schedulers, each driving some jobs: fair shares and loads of the jobs that the other one drives."""

from collections import Counter

from onager.execution_graph import ExecutorLost
from onager.scheduler.jobs.job_heads import JobTerms
from onager.scheduler.policy.reservations import ExecutorReservation
from tests.unit.scheduler.pair import HERE, SLOT, THERE, job_of

# ---------------------------------------------------------------- fair shares


async def test_a_waiting_job_of_another_scheduler_gets_its_share_as_tasks_end(pair):
    old, new = job_of(HERE), job_of(THERE)
    await pair.run_job(old, 100)
    keys = await pair.fill(4)
    assert Counter(key.job_id for key in keys) == {old: 4}
    await pair.run_job(new, 100, at_ms=2)
    for _ in range(3):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
    assert Counter(key.job_id for key in keys) == {old: 2, new: 2}
    for _ in range(10):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
        assert Counter(key.job_id for key in keys) in ({old: 2, new: 2}, {old: 3, new: 1}, {old: 1, new: 3})


async def test_it_gets_its_share_also_where_its_own_scheduler_gets_no_report(pair):
    """All executors talk with the scheduler of the old job, and all reports are of that."""
    old, new = job_of(THERE), job_of(HERE)
    await pair.run_job(old, 100)
    keys = await pair.fill(4, pair.there)
    await pair.run_job(new, 100, at_ms=2)
    for _ in range(8):
        keys = keys[1:] + await pair.finish(keys[:1], pair.there)
        await pair.settle()
    assert set(Counter(key.job_id for key in keys).values()) == {2}


async def test_weights_hold_between_jobs_of_two_schedulers(pair):
    heavy, light = job_of(HERE), job_of(THERE)
    await pair.run_job(heavy, 100, terms=JobTerms(weight=3.0))
    await pair.run_job(light, 100, terms=JobTerms(weight=1.0), at_ms=2)
    keys = await pair.fill(8)
    assert Counter(key.job_id for key in keys) == {heavy: 6, light: 2}
    for _ in range(12):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
    assert Counter(key.job_id for key in keys)[heavy] in (5, 6, 7)


async def test_a_session_keeps_to_its_limit_over_two_schedulers(pair):
    terms = JobTerms(session="s", session_max_tasks=3)
    jobs = [job_of(HERE), job_of(THERE)]
    for job_id in jobs:
        await pair.run_job(job_id, 50, terms=terms)
    keys = await pair.fill(8)
    await pair.settle()
    assert len(keys) == 3
    for _ in range(10):
        keys = keys[1:] + await pair.finish(keys[:1])
        await pair.settle()
        assert sum(map(pair.running, jobs)) <= 4
    assert sum(map(pair.running, jobs)) >= 2, "and it does not starve"


async def test_a_session_keeps_to_its_limit_exactly_where_one_scheduler_acts(pair):
    terms = JobTerms(session="s", session_max_tasks=3)
    jobs = [job_of(HERE, 0), job_of(HERE, 1)]
    other = job_of(HERE, 2)
    for job_id in jobs:
        await pair.run_job(job_id, 50, terms=terms)
    await pair.run_job(other, 50, terms=JobTerms(session="other"), at_ms=3)
    keys = await pair.fill(8)
    assert len([key for key in keys if key.job_id != other]) == 3
    for _ in range(10):
        keys = keys[2:] + await pair.finish(keys[:2])
        assert sum(map(pair.running, jobs)) <= 3
        assert len(keys) == 8, "the other session takes what is left"


async def test_slots_kept_while_a_report_is_stored_are_for_all_of_the_session_again(pair):
    job_id, waiting = job_of(HERE, 0), job_of(HERE, 1)
    for each in (job_id, waiting):
        await pair.run_job(each, 50, terms=JobTerms(session="s", session_max_tasks=2))
    keys = await pair.fill(1)
    pair.here.dispatcher._wake.clear()
    assert len(await pair.finish(keys)) == 1
    assert pair.here.queue.has_runnable
    assert pair.here.dispatcher._wake.is_set(), "a slot may be free that nobody had use for"


async def test_a_session_is_counted_when_the_next_task_is_chosen_and_not_when_the_report_came(pair, monkeypatch):
    limited, other = job_of(HERE, 0), job_of(HERE, 1)
    await pair.run_job(limited, 50, terms=JobTerms(session="s", session_max_tasks=1))
    (key,) = await pair.fill(1)
    await pair.run_job(other, 50, terms=JobTerms(session="s"), at_ms=2)
    read = pair.here.local._reader.read_reports

    async def read_slowly(*given):
        assert [k.job_id for k in await pair.fill(1)] == [other]
        return await read(*given)

    monkeypatch.setattr(pair.here.local._reader, "read_reports", read_slowly)
    assert [k.job_id for k in await pair.finish([key])] == [other]
    assert (pair.running(limited), pair.running(other)) == (0, 2)


# ---------------------------------------------------------------- what is known of other schedulers' jobs


async def test_a_job_that_had_nothing_to_do_is_asked_again_when_its_head_is_newer(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 1)
    (key,) = await pair.fill(1)
    assert not pair.here.queue.has_runnable
    await pair.here.heads.refresh()
    assert not pair.here.queue.has_runnable, "the head is that of the answer"
    lost = ExecutorLost(executor_id="e1", incarnation="life", reason="gone", at_ms=2)
    await pair.there.local.lose_executor(lost)
    await pair.here.heads.refresh()
    assert pair.here.queue.has_runnable
    assert [k.task_attempt for k in await pair.fill(1)] == [key.task_attempt + 1]


async def test_what_is_reported_late_changes_nothing(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 9)
    reported = pair.there.loads.of([job_id])
    await pair.fill(2)
    assert pair.here.queue.running(job_id) == 2
    pair.here.loads.take_loads(reported)
    assert pair.here.queue.running(job_id) == 2


async def test_loads_are_reported_once(pair):
    await pair.run_job(job_of(THERE), 9)
    pair.calls.clear()
    await pair.settle()
    assert pair.calls == []
    await pair.there.local.fill_reservations(job_of(THERE), [ExecutorReservation.of(SLOT)])
    await pair.there.forwarding.drivers()[HERE].tell()
    assert [load.running for call in pair.calls for load in call.loads] == [1]
    assert pair.here.queue.running(job_of(THERE)) == 1


async def test_who_takes_over_a_job_that_it_had_in_memory_tells_the_others_what_it_has_to_do(pair):
    job_id = job_of(THERE)
    await pair.run_job(job_id, 3)
    await pair.here.jobs.load(job_id)  # somebody asked for it
    before = pair.here.loads.latest_change
    pair.here.schedulers.end(pair.here.schedulers.find(THERE), "it is gone")
    await pair.here.adoption.adopt_all()
    reported, last = pair.here.loads.changed_since(before)
    assert [(load.job_id, load.available) for load in reported] == [(job_id, 3)]
    await pair.here.adoption.adopt_all()
    assert pair.here.loads.changed_since(last) == ([], last), "once"
