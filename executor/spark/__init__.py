"""What touches Spark: its session, the planner, the task runner and the Java kernel."""
