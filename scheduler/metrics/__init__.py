"""Metrics of a scheduler: `catalog` declares them, the other modules keep them, `serving` hands them out."""

from onager.scheduler.metrics.observing import observe
from onager.scheduler.metrics.serving import process_registry, serving_metrics
