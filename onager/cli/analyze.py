"""``onager job ID --analyze``: a job's plan as it ran, and what stands out."""

from dataclasses import asdict

import onager
from onager.cli.admin import print_head
from onager.cli.output import print_json
from onager.client.final_plan import counts_few_tasks
from onager.client.plan_hints import plan_hints
from onager.client.plan_text import plan_lines


def analyze(scheduler: str, job_id: str, output: str, *, per_task: bool) -> None:
    """Print the plan of a job with what its operators measured, as far as it has run; *per_task*: with all tasks."""
    with onager.connect(scheduler) as client:
        job = client.job(job_id)
        progress, plan = job.progress(), job.final_plan()
        has_tasks = per_task or counts_few_tasks(plan)
        tasks = job.task_costs() if has_tasks else {}
    if output == "json":
        found, hints = asdict(plan), plan_hints(plan, tasks)
        for stage in found["stages"]:
            stage_id = stage["progress"]["stage_id"]
            stage["hints"] = [asdict(hint) for hint in hints if hint.stage_id == stage_id]
            if per_task:
                stage["tasks"] = [asdict(task) for task in tasks.get(stage_id, ())]
        print_json(found)
        return
    print_head(progress)
    print()
    for line in plan_lines(plan, tasks, per_task=per_task):
        print(line)
    if not has_tasks:
        print("The job has too many tasks to look at each: --per-task does, and also finds skew of bytes.")
    if progress.failure is not None:
        print(progress.failure)
