"""Airflow tasks that are durable Onager jobs: a connection, an operator and its trigger."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks of a provider: its name, and the type of its connections."""
    return {
        "package-name": "onager-airflow",
        "name": "Onager",
        "description": "Spark SQL as durable jobs that outlive every process that runs them.",
        "connection-types": [{"connection-type": "onager", "hook-class-name": "onager_airflow.hook.OnagerHook"}],
    }
