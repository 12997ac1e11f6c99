"""Metrics as Prometheus would read them."""

import urllib.request

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import HANGS_S

Samples = dict[str, float]
"""Values by name and labels, as in ``onager_jobs{state="failed"}``, labels in order of their names."""


def parsed(text: str) -> Samples:
    return {
        _shown(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_registry(registry: CollectorRegistry) -> Samples:
    return parsed(generate_latest(registry).decode())


def fetched(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANGS_S) as answer:
        return parsed(answer.read().decode())


def counted(samples: Samples, prefix: str) -> Samples:
    """Return what is not 0 of the metrics whose names begin with *prefix*."""
    return {name: value for name, value in samples.items() if name.startswith(prefix) and value}


def _shown(name: str, labels: dict[str, str]) -> str:
    text = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{text}}}" if text else name
