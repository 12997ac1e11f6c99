"""What touches Spark: its session, planning, running and the Java kernel."""
