"""From a stage's plan to its tasks' outcomes: plans bound, tasks run in Spark, streams opened to other executors."""
