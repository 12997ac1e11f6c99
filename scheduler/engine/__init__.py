"""Drives jobs: tasks into slots, reports into logs, lists against graphs, and sweeps."""
