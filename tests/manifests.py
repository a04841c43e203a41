"""The manifests of `kubernetes/`, and what they share with the container files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "kubernetes").glob("*.yaml"))
CUSTOM = sorted((ROOT / "kubernetes").glob("*/*.yaml"))
COMPONENTS = sorted((ROOT / "kubernetes").glob("components/*/*.yaml"))
OPERATING = (ROOT / "docs/operating.md").read_text()
PORT = 8000


def manifest(name: str) -> Any:
    return yaml.safe_load((ROOT / "kubernetes" / f"{name}.yaml").read_text())


def pod_specs() -> dict[str, Any]:
    return {
        "deployment": manifest("deployment")["spec"]["template"]["spec"],
        "serving runtime": manifest("kserve/cluster-serving-runtime")["spec"],
    }
