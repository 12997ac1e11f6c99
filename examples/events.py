"""Follow what happens to a job: launches, results, and which scheduler committed them.

Run it: python examples/events.py
"""

import onager

with onager.connect() as client:
    # Cut into stages, the query has events of several tasks.
    job = client.sql("SELECT count(*) AS n FROM range(1000)", conf={"onager.fusion.maxBytes": 0}, name="followed")
    # Ends when the job has ended. Also works after the loss of a scheduler.
    for event in job.events(follow=True):
        print(event.type)
    print(job.to_arrow().to_pylist())
