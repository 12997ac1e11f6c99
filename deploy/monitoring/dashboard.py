"""A Grafana dashboard with each metric of the catalog, put together over schedulers as the catalog says."""

import json
from collections.abc import Sequence
from typing import Any, Final

from onager.metric import Kind, Metric, Whose
from onager.scheduler.metrics import catalog
from onager.scheduler.metrics.catalog import SECTIONS

_COLUMNS: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 7
_OF_CLUSTER: Final = 'job=~"$job"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUANTILES: Final = (0.5, 0.95, 0.99)

_FAILED_PART: Final = (
    f'sum(increase(onager_jobs_ended_total{{{_OF_CLUSTER},state="failed"}}[1h])) / '
    f"sum(increase(onager_jobs_ended_total{{{_OF_CLUSTER}}}[1h]))"
)

Target = tuple[str, str]
"""An expression, and the legend of its series."""

OVERVIEW: Final[Sequence[tuple[str, str, str]]] = (
    ("Jobs running", f'max(onager_jobs{{{_OF_CLUSTER},state="running"}})', "short"),
    ("Tasks waiting", f'max(onager_tasks{{{_OF_CLUSTER},state="available"}})', "short"),
    ("Slots wanted", f"max(onager_slots_wanted{{{_OF_CLUSTER}}})", "short"),
    (
        "Slots that take work",
        f'sum(max by (state) (onager_executor_slots{{{_OF_CLUSTER},state=~"busy|free"}}))',
        "short",
    ),
    ("Schedulers", f"max(onager_schedulers{{{_OF_CLUSTER}}})", "short"),
    (
        "Jobs that failed, of those that ended in an hour",
        _FAILED_PART,
        "percentunit",
    ),
)
"""Title, expression and unit of the figures on top."""


def dashboard() -> str:
    """Return the dashboard as JSON."""
    panels: list[dict[str, Any]] = []
    y = 0
    for number, (title, expr, unit) in enumerate(OVERVIEW):
        place = {"h": 4, "w": _COLUMNS // len(OVERVIEW), "x": number * (_COLUMNS // len(OVERVIEW)), "y": y}
        panels.append(_panel("stat", title, "", [(expr, "")], unit, place))
    y += 4
    for title, metrics in SECTIONS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": _place(0, y, 1, _COLUMNS)})
        y += 1
        for number, metric in enumerate(metrics):
            place = _place(number % 3 * _WIDTH, y + number // 3 * _HEIGHT, _HEIGHT, _WIDTH)
            panels.append(_panel("timeseries", _title(metric), metric.about, targets(metric), _unit(metric), place))
        y += -(-len(metrics) // 3) * _HEIGHT
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    board = {
        "title": "Onager",
        "uid": "onager",
        "tags": ["onager"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _job()]},
        "annotations": {"list": [_alerts()]},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def targets(metric: Metric) -> list[Target]:
    """Return what to plot of *metric*, for the whole cluster, or for each scheduler where they differ."""
    name, own = metric.name, ("instance",) if metric.whose is Whose.PROCESS else ()
    labels = (*own, *metric.labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    if metric.kind is Kind.HISTOGRAM:
        by = ", ".join((*labels, "le"))
        rate = f"sum by ({by}) (rate({name}_bucket{{{_OF_CLUSTER}}}[$__rate_interval]))"
        return [(f"histogram_quantile({q}, {rate})", f"p{100 * q:g} {legend}".strip()) for q in _QUANTILES]
    selected = f"{name}{{{_OF_CLUSTER}}}"
    by = f" by ({', '.join(labels)})" if labels else ""
    if metric.kind is Kind.COUNTER:
        return [(f"sum{by} (rate({selected}[$__rate_interval]))", legend)]
    if metric is catalog.CERTIFICATE_EXPIRY:
        return [(f"min{by} ({selected} - time())", legend)]
    return [(f"max{by} ({selected})", legend)]


def _title(metric: Metric) -> str:
    return metric.name.removeprefix("onager_").removesuffix("_total").replace("_", " ")


def _unit(metric: Metric) -> str:
    if "_bytes" in metric.name:
        return "Bps" if metric.kind is Kind.COUNTER else "bytes"
    if metric.name.endswith("_seconds"):
        return "s"
    return "ops" if metric.kind is Kind.COUNTER else "short"


def _place(x: int, y: int, height: int, width: int) -> dict[str, int]:
    return {"h": height, "w": width, "x": x, "y": y}


def _panel(
    kind: str, title: str, about: str, found: Sequence[Target], unit: str, place: dict[str, int]
) -> dict[str, Any]:
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"datasource": _SOURCE, "refId": chr(ord("A") + n), "expr": expr, "legendFormat": legend or "__auto"}
            for n, (expr, legend) in enumerate(found)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _job() -> dict[str, Any]:
    query = f"label_values({catalog.BUILD_INFO.name}, job)"
    return {"name": "job", "type": "query", "label": "Cluster", "datasource": _SOURCE, "query": query, "refresh": 2}


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Onager.*",alertstate="firing"}',
        "titleFormat": "{{alertname}}",
    }
