"""The ids of jobs: each try of a task instance has one, whichever process of Airflow asks for it."""

import hashlib
import json
import re
from typing import Final

_DIGEST: Final = 12
_PART: Final = 18


def job_id_of(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> str:
    """Return the job's id, such as ``af-sales-load-6f1d0c2ab9e4-1``: readable, and different for different tries."""
    identity = json.dumps([dag_id, run_id, task_id, map_index]).encode()
    digest = hashlib.sha256(identity).hexdigest()[:_DIGEST]
    return "-".join(["af", *filter(None, map(_part, (dag_id, task_id))), digest, str(try_number)])


def _part(name: str) -> str:
    """Return what a job's id can show of a name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:_PART].strip("-")
