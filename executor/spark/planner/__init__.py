"""From a job spec to stages: the job's session, its query, the cut, and the sizes."""
