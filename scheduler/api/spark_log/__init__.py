"""A job as Spark's History Server reads it: jobs, stages, tasks and executors as events, one JSON object a line."""
