"""Submit a job over REST, and follow its progress as server-sent events.

Run it: ONAGER_HTTP=http://127.0.0.1:50080 python examples/rest.py
"""

import json
import os
import uuid

import httpx

job_id = f"rest-{uuid.uuid4()}"
spec = {"name": "over REST", "sql": {"text": "SELECT 1 AS one"}}

with httpx.Client(base_url=os.environ.get("ONAGER_HTTP", "http://127.0.0.1:50080")) as http:
    answer = http.post("/api/v1/jobs", json={"job_id": job_id, "spec": spec})
    print("submitted:", answer.status_code)
    # The same job id again: the job is there, and does not run twice.
    again = http.post("/api/v1/jobs", json={"job_id": job_id, "spec": spec})
    print("again:", again.status_code, again.json()["existed"])

    headers = {"accept": "text/event-stream"}
    with http.stream("GET", f"/api/v1/jobs/{job_id}/progress", headers=headers, timeout=None) as stream:
        for line in stream.iter_lines():
            if line == "event: end":
                break
    print("state:", http.get(f"/api/v1/jobs/{job_id}").json()["state"])

    lines = http.get(f"/api/v1/jobs/{job_id}/events", headers={"accept": "application/x-ndjson"}).text.splitlines()
    print("first event:", json.loads(lines[0])["type"])
