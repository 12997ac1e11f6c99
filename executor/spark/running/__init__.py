"""Running: binds stage plans, runs their tasks in Spark, and opens streams to other executors."""
