"""Submit with a job id of your own, so that a repeated call never runs a job twice; retry a job that failed.

Run it: python examples/retry.py
"""

import uuid
from pathlib import Path

import onager

late = Path("late").absolute()
job_id = f"report-{uuid.uuid4()}"
query = f"SELECT count(*) AS n FROM parquet.`{late}`"

with onager.connect() as client:
    job = client.sql(query, job_id=job_id)
    # As after a lost answer: the same call returns the same job.
    same = client.sql(query, job_id=job_id)
    print("same job:", same.id == job.id)

    try:
        job.wait()
    except onager.JobFailedError as error:
        print("failed:", error.error_class)

    # What was missing is there now. A retry is a new job with the same specification.
    client.sql("SELECT id FROM range(3)", output=late, mode="overwrite").wait()
    again = job.retry()
    print("retry:", again.to_arrow().to_pylist())
    print("retry of this job:", again.progress().retry_of == job.id)
