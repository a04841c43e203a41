"""What the manifests say agrees with the service, with one another and with Kubernetes' schemas."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from manifests import COMPONENTS, CORE, CUSTOM, OPERATING, PORT, ROOT, manifest, pod_specs

KUBERNETES = "1.34"


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_manifests_are_valid(path: Path) -> None:
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), KUBERNETES, strict=True)


def test_both_ways_apply_the_same_manifests() -> None:
    """`kubectl apply -f` takes all that end in .yaml; -k those that are named in a file that must not end so."""
    listed = yaml.safe_load((ROOT / "kubernetes/Kustomization").read_text())["resources"]
    assert sorted(listed) == [path.name for path in CORE]


@pytest.mark.parametrize("path", COMPONENTS, ids=lambda path: path.stem)
def test_parts_of_components_are_valid(path: Path) -> None:
    resource = yaml.safe_load(path.read_text())
    if resource["kind"] == "Component":
        others = {*resource["resources"], *(patch["path"] for patch in resource["patches"])}
        assert others == {other.name for other in path.parent.glob("*.yaml")} - {path.name}
    elif not path.stem.endswith("-patch"):  # which is no whole resource
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def kustomized(tmp_path: Path) -> tuple[dict[str, Any], Any]:
    """The kustomization of the documentation, and what it makes."""
    (block,) = re.findall(r"^```yaml\n(.*?kind: Kustomization\n.*?)^```", OPERATING, re.MULTILINE | re.DOTALL)
    (tmp_path / "fpet-serve").symlink_to(ROOT)
    own = tmp_path / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(block)
    for name in ("api-keys", "admin-key"):
        (own / name).write_text(f"{name} of sixteen characters\n")
    made = subprocess.run(["kubectl", "kustomize", str(own)], capture_output=True, text=True, check=True).stdout
    return {one["kind"]: one for one in yaml.safe_load_all(made)}, yaml.safe_load(block)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_kustomization_of_ones_own_is_valid(tmp_path: Path) -> None:
    made, written = kustomized(tmp_path)
    for resource in made.values():
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)
    assert made.keys() > {"NetworkPolicy", "PersistentVolumeClaim", "Secret"}
    pod = made["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (image,) = written["images"]
    assert container["image"].startswith(image["newName"])
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes.keys() == {"keys", "tasks", "tmp"}
    assert volumes["keys"]["secret"]["secretName"] == made["Secret"]["metadata"]["name"]  # with its digest
    assert made["Secret"]["data"].keys() == {"api-keys", "admin-key"}


def test_pods_read_the_keys_and_the_tasks_of_their_component() -> None:
    part = manifest("components/tasks-and-keys/deployment-patch")["spec"]["template"]["spec"]
    (container,) = part["containers"]
    (original,) = pod_specs()["deployment"]["containers"]
    assert container["name"] == original["name"]
    assert {one["name"]: one["value"] for one in container["env"]} == {
        "FPET_API_KEYS_FILE": "/keys/api-keys",
        "FPET_ADMIN_KEY_FILE": "/keys/admin-key",
    }
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts == {
        "tasks": {"name": "tasks", "mountPath": "/tasks"},  # FPET_TASKS of the image
        "keys": {"name": "keys", "mountPath": "/keys", "readOnly": True},
    }
    volumes = {volume.pop("name"): volume for volume in part["volumes"]}
    claim = manifest("components/tasks-and-keys/persistent-volume-claim")["metadata"]["name"]
    assert volumes["tasks"] == {"persistentVolumeClaim": {"claimName": claim}}
    assert volumes["keys"]["secret"]["defaultMode"] == 0o440
    assert pod_specs()["deployment"]["securityContext"]["fsGroup"] == 1000


def test_the_network_policy_is_of_the_pods_and_of_their_port() -> None:
    spec = manifest("components/tasks-and-keys/network-policy")["spec"]
    assert spec["podSelector"] == manifest("deployment")["spec"]["selector"]
    (rule,) = spec["ingress"]
    assert [port["port"] for port in rule["ports"]] == [PORT]
    (label,) = rule["from"][0]["namespaceSelector"]["matchLabels"]
    assert f"{label}=true" in OPERATING


@pytest.mark.parametrize("path", CUSTOM, ids=lambda path: path.stem)
def test_custom_resources_have_a_name_and_a_version(path: Path) -> None:
    """Their schemas come with their operators: structure only."""
    resource = yaml.safe_load(path.read_text())
    assert re.fullmatch(r"[a-z.]+/v1((alpha|beta)1)?", resource["apiVersion"])
    assert resource["metadata"]["name"]
    assert resource["spec"]


def test_the_pods_of_a_custom_resource_are_valid() -> None:
    spec = {key: pod_specs()["serving runtime"][key] for key in ("containers", "volumes")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fpet"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["deployment", "serving runtime"])
def test_pods_run_as_the_image_does(name: str) -> None:
    spec = pod_specs()[name]
    (container,) = spec["containers"]
    security = {**spec.get("securityContext", {}), **container["securityContext"]}
    assert security["runAsNonRoot"]
    assert security["runAsUser"] == 1000
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]
    assert [volume.keys() for volume in spec["volumes"]] == [{"name", "emptyDir"}]
    assert [port["containerPort"] for port in container["ports"]] == [PORT]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/readyz"
    # What the service takes its number of workers from.
    assert container["resources"]["limits"]["cpu"]
    assert {"name": "FPET_LOG_FORMAT", "value": "json"} in container["env"]


@pytest.mark.parametrize("name", ["deployment", "serving runtime"])
def test_many_families_have_the_time_to_start(name: str) -> None:
    (container,) = pod_specs()[name]["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 3600


def test_everything_selects_the_pods_of_the_deployment(exported: dict[str, set[str]]) -> None:
    labels = manifest("deployment")["spec"]["template"]["metadata"]["labels"]
    service, scaler = manifest("service"), manifest("horizontal-pod-autoscaler")["spec"]
    assert manifest("deployment")["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert manifest("pod-disruption-budget")["spec"]["selector"]["matchLabels"] == labels
    monitor = manifest("prometheus-operator/service-monitor")["spec"]
    assert monitor["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert [end["port"] for end in monitor["endpoints"]] == [port["name"] for port in service["spec"]["ports"]]
    assert scaler["scaleTargetRef"]["name"] == manifest("deployment")["metadata"]["name"]
    computed, waiting = scaler["metrics"]
    assert computed["resource"]["name"] == "cpu"
    (container,) = pod_specs()["deployment"]["containers"]
    assert container["resources"]["requests"]["cpu"]  # of which its use is a share
    assert waiting["pods"]["metric"]["name"] == "fpet_queue_size"
    assert "fpet_queue_size" in exported


def test_an_inference_service_finds_the_runtime() -> None:
    runtime = manifest("kserve/cluster-serving-runtime")["spec"]
    model = manifest("kserve/inference-service")["spec"]["predictor"]["model"]
    (supported,) = runtime["supportedModelFormats"]
    assert model["modelFormat"] == {"name": supported["name"], "version": supported["version"]}
    assert supported["autoSelect"]
    assert model["protocolVersion"] in runtime["protocolVersions"]


def test_prometheus_is_told_of_an_inference_service() -> None:
    annotations = manifest("kserve/inference-service")["metadata"]["annotations"]
    assert annotations["serving.kserve.io/enable-prometheus-scraping"] == "true"
    assert manifest("kserve/cluster-serving-runtime")["spec"]["annotations"] == {
        "prometheus.kserve.io/port": str(PORT),
        "prometheus.kserve.io/path": "/metrics",
    }
