"""All code that uses Spark: its session, planning, running, and the Java kernel."""
