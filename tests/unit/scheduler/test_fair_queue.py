import random  # noqa: TID251 seeded
from collections import Counter

import pytest

from onager.ids import JobId
from onager.scheduler.policy.fair_queue import FairQueue

A, B, C = JobId("a"), JobId("b"), JobId("c")


def queue(**jobs):
    made = FairQueue()
    for place, (job_id, (running, available, weight)) in enumerate(jobs.items()):
        made.update(JobId(job_id), submitted_ms=place, weight=weight, running=running, available=available)
    return made


def taken(made, slots):
    return Counter(made.take_job() for _ in range(slots))


def test_slots_go_round_and_the_oldest_comes_first():
    made = queue(a=(0, 9, 1), b=(0, 9, 1))
    assert [made.take_job() for _ in range(4)] == [A, B, A, B]


def test_a_job_with_more_running_tasks_waits():
    assert taken(queue(a=(3, 9, 1), b=(1, 9, 1)), 2) == {B: 2}


def test_weights_share_in_proportion():
    assert taken(queue(a=(0, 99, 3), b=(0, 99, 1)), 8) == {A: 6, B: 2}


def test_no_job_is_given_more_than_it_has_tasks():
    made = queue(a=(0, 1, 1), b=(0, 2, 1))
    assert taken(made, 5) == {A: 1, B: 2, None: 2}
    assert made.available == 0
    assert not made.has_runnable


def test_a_slot_goes_to_a_job_that_it_fits_and_costs_the_others_nothing():
    made = queue(a=(0, 9, 1), b=(5, 9, 1))
    assert made.take_job(fits=lambda job_id: job_id == B) == B
    assert made.take_job(prefer=A, fits=lambda _: False) is None
    assert [made.take_job() for _ in range(8)] == [A] * 7 + [B]


def test_a_slot_stays_with_its_job_while_that_is_fair():
    made = queue(a=(0, 9, 1), b=(0, 9, 1))
    assert made.take_job(prefer=B) == B
    assert made.take_job(prefer=B) == A


def test_slots_given_back_count_no_more():
    made = queue(a=(0, 1, 1), b=(0, 1, 1))
    assert made.take_job() == A
    made.give_back_slots(A, 1)
    assert made.take_job() == A


def test_an_ended_job_is_forgotten():
    made = queue(a=(0, 1, 1))
    made.remove(A)
    assert made.take_job() is None
    assert made.available == 0


def test_a_job_keeps_its_slots_while_it_has_no_more_than_the_others():
    made = queue(a=(0, 9, 1), b=(2, 9, 1), c=(5, 9, 2))
    assert made.allowance(A) == 3
    assert made.allowance(B) == 1
    assert made.allowance(C) == 1
    assert queue(a=(0, 9, 1)).allowance(A) == float("inf")
    assert made.take_job() == A


def test_no_job_among_equals_waits_forever():
    """One slot, two jobs that never end: without turns the first would keep it, report after report."""
    made, given = queue(a=(0, 99, 1), b=(0, 99, 1)), []
    while len(given) < 16:
        holder = given[-1] if given else A
        if not (given and made.allowance(holder) >= 1):
            holder = made.take_job(prefer=holder)
            made.give_back_slots(holder, 1)
        made.note_granted(holder, 1)
        given.append(holder)
    assert Counter(given) == {A: 8, B: 8}
    assert given[:5] == [A, A, A, A, B]


def test_the_job_that_has_waited_longest_comes_first_among_equals():
    made = queue(a=(0, 9, 1), b=(0, 9, 1), c=(0, 9, 1))
    made.note_granted(A, 1)
    made.note_granted(C, 1)
    made.note_granted(B, 1)
    assert [made.take_job() for _ in range(3)] == [A, C, B]


def test_a_job_that_was_passed_over_gets_slots_again_when_it_is_reconsidered():
    made = queue(a=(0, 2, 1), b=(0, 2, 1))
    made.pass_over(A)
    assert [made.take_job(prefer=A), made.take_job()] == [B, B]
    assert made.take_job() is None
    made.reconsider()
    assert made.take_job() == A


def test_ten_thousand_waiting_jobs_cost_no_more_a_slot():
    made = FairQueue()
    for n in range(10_000):
        made.update(JobId(f"{n:05}"), submitted_ms=n, weight=1, running=0, available=1)
    order = [made.take_job() for _ in range(10_000)]
    assert order == sorted(order)


def submit(made, principal, jobs):
    for n in range(jobs):
        made.update(JobId(f"{principal}-{n}"), submitted_ms=n, weight=1, running=0, available=1, principal=principal)


def test_principals_take_turns_however_many_jobs_each_has():
    made, served = FairQueue(), []
    submit(made, "mallory", 750)
    for n in range(20):
        if n == 10:
            submit(made, "ann", 3)
            submit(made, "bob", 1)
        job_id = made.take_job()
        made.give_back_slots(job_id, 1)
        made.note_granted(job_id, 1)
        made.remove(job_id)
        served.append(job_id.partition("-")[0])
    assert served[:10] == ["mallory"] * 10
    assert Counter(served[10:13]) == {"mallory": 1, "ann": 1, "bob": 1}
    assert Counter(served[13:17]) == {"mallory": 2, "ann": 2}


def test_slots_that_are_free_at_once_go_to_principals_in_turn():
    made = FairQueue()
    submit(made, "mallory", 10)
    submit(made, "ann", 2)
    claims = made.claims(4)
    assert Counter(job_id.partition("-")[0] for job_id in claims) == {"mallory": 2, "ann": 2}
    assert [made.take_job() for _ in range(4)] == claims


def test_a_principal_with_more_running_tasks_in_its_job_waits_for_the_others():
    made = FairQueue()
    made.update(A, submitted_ms=0, weight=1, running=2, available=1, principal="ann")
    made.update(B, submitted_ms=1, weight=1, running=1, available=2, principal="bob")
    made.update(C, submitted_ms=2, weight=1, running=1, available=1, principal="bob")
    assert [made.take_job() for _ in range(4)] == [B, C, A, B]


def claim(share, queued):
    running, planned, weight, submitted_ms = share["running"], share["planned"], share["weight"], share["submitted_ms"]
    known = queued._shares[share["job_id"]]
    return (running + planned) / weight, known.principal.turn, known.granted, submitted_ms


@pytest.mark.parametrize("seed", range(30))
def test_the_best_claim_that_may_be_served_is_found_whatever_has_happened(seed):
    """Against a model that looks at all jobs: sessions fill and empty, jobs come, go, and fit or not.

    Of an even seed all jobs are of one principal.
    """
    rng = random.Random(seed)
    made, jobs = FairQueue(), {}

    def is_runnable(share):
        of_session = sum(s["running"] + s["planned"] for s in jobs.values() if s["session"] == share["session"])
        return share["available"] > share["planned"] and (not share["most"] or of_session < share["most"])

    for number in range(600):
        match rng.choice(["new", "update", "update", "take", "take", "take", "give back", "end"]):
            case "new" if len(jobs) < 25:
                session = rng.choice(["", "s", "t"])
                share = {
                    "job_id": JobId(f"j{number}"),
                    "principal": rng.choice(["", "ann", "bob"]) if seed % 2 else "",
                    "submitted_ms": number,
                    "weight": 1,
                    "running": 0,
                    "planned": 0,
                    "available": rng.randrange(4),
                    "session": session,
                    "most": rng.choice([2, 2, 3]) if session else 0,
                }
                jobs[JobId(f"j{number}")] = share
            case "end" if jobs:
                job_id = rng.choice(sorted(jobs))
                del jobs[job_id]
                made.remove(job_id)
                continue
            case "give back" if jobs:
                job_id = rng.choice(sorted(jobs))
                slots = rng.randint(0, jobs[job_id]["planned"])
                jobs[job_id]["planned"] -= slots
                made.give_back_slots(job_id, slots)
                continue
            case "take":
                fit = {job_id for job_id in jobs if rng.random() < 0.6}
                runnable = [job_id for job_id in fit if is_runnable(jobs[job_id])]
                best = min(runnable, key=lambda j: (claim(jobs[j], made), j), default=None)
                assert made.take_job(fits=fit.__contains__) == best
                if best is not None:
                    jobs[best]["planned"] += 1
                continue
            case "update" if jobs:
                job_id = rng.choice(sorted(jobs))
                jobs[job_id] |= {"running": rng.randrange(3), "available": rng.randrange(4)}
        for job_id, share in jobs.items():
            names = ("submitted_ms", "weight", "running", "available", "principal", "session")
            made.update(job_id, **{name: share[name] for name in names}, session_max_tasks=share["most"])
