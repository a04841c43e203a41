"""What the container files say agrees with the service, with one another and with Kubernetes' schemas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from serving import Serving

from service.ending import longest_end
from service.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
CHANGING = yaml.safe_load((ROOT / "docker/compose.tasks.yml").read_text())
PROMETHEUS = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yml").read_text())
PROVISIONING = ROOT / "docker/grafana/provisioning"
CORE = sorted((ROOT / "kubernetes").glob("*.yaml"))
CUSTOM = sorted((ROOT / "kubernetes").glob("*/*.yaml"))
KUBERNETES = "1.34"
PORT = 8000
OWN_SERVICES = ("fpet", "fpet-gpu")


def manifest(name: str) -> Any:
    return yaml.safe_load((ROOT / "kubernetes" / f"{name}.yaml").read_text())


def pod_specs() -> dict[str, Any]:
    return {
        "deployment": manifest("deployment")["spec"]["template"]["spec"],
        "serving runtime": manifest("kserve/cluster-serving-runtime")["spec"],
    }


# The image.


def test_every_variable_of_the_service_is_one_of_its_settings() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    files = [ROOT / name for name in ("docker/Dockerfile", "docker-compose.yml", "docker/compose.tasks.yml")]
    for path in (*files, *CORE, *CUSTOM):
        named = set(re.findall(rf"\b{PREFIX}[A-Z_]+", path.read_text()))
        assert named <= known, path.name


def test_every_build_argument_is_declared() -> None:
    declared = set(re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE))
    assert declared == {"BASE", "TORCH_INDEX"}
    for name in OWN_SERVICES:
        assert set(COMPOSE["services"][name]["build"].get("args", ())) <= declared


def test_the_image_can_send_traces() -> None:
    (code,) = re.findall(r"python3 -c '(import tomllib; .+?)'", DOCKERFILE, re.DOTALL)
    listed = subprocess.check_output([sys.executable, "-c", code.replace("\\\n", "")], cwd=ROOT, text=True)
    assert {re.split(">", line)[0] for line in listed.splitlines()} >= {"torch", "opentelemetry-sdk"}


def test_the_last_stage_runs_as_a_user_and_stops_in_order() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    for line in ("USER 1000:1000", "STOPSIGNAL SIGTERM", f"EXPOSE {PORT}", 'ENTRYPOINT ["fpet"]', 'CMD ["serve"]'):
        assert f"\n{line}\n" in last
    assert "HEALTHCHECK" in last
    assert "\nRUN getent passwd 1000 || useradd --uid 1000 " in last  # Ubuntu's images have such a user
    assert "apt-get" not in DOCKERFILE


def test_the_context_holds_all_that_is_copied() -> None:
    copied = set(re.findall(r"^COPY (?!--from)(?:--chown=\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE))
    let_through = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    names = {name.partition("/")[0] for line in copied for name in line.split()}
    assert names == let_through
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.parametrize(
    ("host", "path"), [("127.0.0.1", "/readyz"), ("", "/readyz"), ("127.0.0.1", "/nowhere"), ("127.0.0.2", "/readyz")]
)
def test_the_health_check_asks_the_service(service: Serving, host: str, path: str) -> None:
    (code,) = re.findall(r'^HEALTHCHECK .*?"-c", \\\n\s+"(.+)"\]$', DOCKERFILE, re.MULTILINE)
    assert "'/readyz'" in code
    environment = {**os.environ, "FPET_HOST": host, "FPET_PORT": str(service.address[1])}
    done = subprocess.run([sys.executable, "-c", code.replace("/readyz", path)], env=environment, check=False)
    assert (done.returncode == 0) == (host in (service.address[0], "") and path == "/readyz")


# Compose, Prometheus and Grafana.


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_compose_gives_the_service_no_more_than_it_needs(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert [port.split(":") for port in service["ports"]] == [["127.0.0.1", str(PORT), str(PORT)]]


def test_with_a_gpu_it_is_the_same_service_that_must_find_one() -> None:
    one, other = (COMPOSE["services"][name]["environment"] for name in OWN_SERVICES)
    assert other == {**one, "FPET_DEVICE": "cuda"}


def test_no_port_is_open_to_the_network() -> None:
    for name, service in COMPOSE["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name


def test_stopping_waits_until_the_service_has_drained() -> None:
    by_default = {name: Settings.model_fields[name].default for name in ("shutdown_delay", "drain_seconds")}
    for name in OWN_SERVICES:
        grace = int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s"))
        assert grace > longest_end(Settings.model_construct(**by_default))
    predictor = manifest("kserve/inference-service")["spec"]["predictor"]
    for pod, spec in zip((pod_specs()["deployment"], predictor), pod_specs().values(), strict=True):
        (delay,) = (one["value"] for one in spec["containers"][0]["env"] if one["name"].endswith("_DELAY"))
        ended = longest_end(Settings.model_construct(**{**by_default, "shutdown_delay": float(delay)}))
        assert pod["terminationGracePeriodSeconds"] > ended
        assert pod["enableServiceLinks"] is False  # they would be options: FPET_PORT, of a Service `fpet`


def test_files_that_compose_mounts_exist() -> None:
    for service in COMPOSE["services"].values():
        for source in (volume.split(":")[0] for volume in service.get("volumes", ())):
            assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source


def test_tasks_are_in_a_volume_only_where_they_may_change() -> None:
    """It is filled once, and then hides the tasks of every later image, which may have another backbone."""
    for name in OWN_SERVICES:
        assert "volumes" not in COMPOSE["services"][name]
        assert "FPET_ADMIN_KEY" not in COMPOSE["services"][name]["environment"]
        assert CHANGING["services"][name] == {"environment": {"FPET_ADMIN_KEY": None}, "volumes": ["tasks:/tasks"]}
    assert CHANGING["services"].keys() == {*OWN_SERVICES}
    assert CHANGING["volumes"].keys() == {"tasks"}
    assert re.search(r"^ +FPET_TASKS=/tasks$", DOCKERFILE, re.MULTILINE)


def test_prometheus_scrapes_what_compose_runs() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    (lookup,) = job["dns_sd_configs"]
    assert lookup["names"] == ["fpet"]
    assert lookup["port"] == PORT
    assert "fpet" in COMPOSE["services"]
    assert COMPOSE["services"]["fpet-gpu"]["networks"]["default"]["aliases"] == ["fpet"]


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources/prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards/fpet.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
    mounted = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    assert mounted["./docker/grafana/dashboards"] == provider["options"]["path"]


# Kubernetes.


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_manifests_are_valid(path: Path) -> None:
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), KUBERNETES, strict=True)


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
    assert [metric["pods"]["metric"]["name"] for metric in scaler["metrics"]] == ["fpet_queue_size"]
    assert "fpet_queue_size" in exported


def test_an_inference_service_finds_the_runtime() -> None:
    runtime = manifest("kserve/cluster-serving-runtime")["spec"]
    model = manifest("kserve/inference-service")["spec"]["predictor"]["model"]
    (supported,) = runtime["supportedModelFormats"]
    assert model["modelFormat"] == {"name": supported["name"], "version": supported["version"]}
    assert supported["autoSelect"]
    assert model["protocolVersion"] in runtime["protocolVersions"]
