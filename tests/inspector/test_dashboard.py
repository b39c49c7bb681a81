"""deploy/grafana-streams.json and deploy/alerts.yml use metrics and labels that a server really exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.judge import free_port
from tests.package.test_modes import ROOT
from tests.server.harness import running
from tests.server.test_metrics import fetch

yaml = pytest.importorskip("yaml")
_METRIC = re.compile(r"\brillet_[a-z_]+")
_LABELS = re.compile(r"(rillet_[a-z_]+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the metrics of a server that has a stream and a group, with their labels."""
    port = free_port()
    with running(tmp_path_factory.mktemp("metrics"), "--metrics-port", str(port)) as server:
        with server.client() as client:
            client.call("XADD s * f v")
            client.call("XGROUP CREATE s g 0")
            client.call("XREADGROUP GROUP g c STREAMS s >")
            status, _, text = fetch(port)
        assert status == 200
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(rillet_[a-z_]+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    return found


def expressions() -> list[str]:
    dashboard: Any = json.loads((ROOT / "deploy/grafana-streams.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_each_metric_and_label_exists(exported: dict[str, set[str]]) -> None:
    for expression in expressions():
        names = _METRIC.findall(expression)
        assert names
        assert [name for name in names if name not in exported] == []
        for name, labels in _LABELS.findall(expression):
            used = set(re.findall(r"(\w+)=", labels))
            assert used <= exported[name] | {"instance"}, expression


def test_the_alerts_cover_lag_age_and_silence() -> None:
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {"RilletLagGrows", "RilletPendingTooOld", "RilletConsumerSilent"} <= names
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_the_panels_do_not_overlap() -> None:
    dashboard: Any = json.loads(Path(ROOT / "deploy/grafana-streams.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
