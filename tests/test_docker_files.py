"""What the container files say agrees with the service, with one another and with Kubernetes' schemas."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
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
COMPONENTS = sorted((ROOT / "kubernetes").glob("components/*/*.yaml"))
OPERATING = (ROOT / "docs/operating.md").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
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
    for path in (*files, *CORE, *CUSTOM, *COMPONENTS):
        named = set(re.findall(rf"\b{PREFIX}[A-Z_]+", path.read_text()))
        assert named <= known, path.name


def test_every_build_argument_is_declared() -> None:
    declared = set(re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE))
    assert declared == {"BASE", "TORCH_INDEX", "VERSION", "REVISION"}
    for name in OWN_SERVICES:
        assert set(COMPOSE["services"][name]["build"].get("args", ())) <= declared


def test_the_image_can_send_traces() -> None:
    (code,) = re.findall(r"python3 -c '(import tomllib; .+?)'", DOCKERFILE, re.DOTALL)
    listed = subprocess.check_output([sys.executable, "-c", code.replace("\\\n", "")], cwd=ROOT, text=True)
    assert {re.split(">", line)[0] for line in listed.splitlines()} >= {"torch", "opentelemetry-sdk"}


def test_every_image_is_of_this_version() -> None:
    """One without a tag is `latest`, which a node that has one of that name does not pull again."""
    compose = [COMPOSE["services"][name]["image"] for name in OWN_SERVICES]
    pods = [container["image"] for spec in pod_specs().values() for container in spec["containers"]]
    assert compose == [f"fpet-serve:{VERSION}", f"fpet-serve:{VERSION}-cuda"]
    assert pods == [f"fpet-serve:{VERSION}"] * 2
    assert f"\nARG VERSION={VERSION}\n" in DOCKERFILE
    named = {tag for text in (OPERATING, DOCKERFILE) for tag in re.findall(r"fpet-serve:(\d[\w.]*)", text)}
    assert named == {VERSION}


def test_labels_say_what_the_image_is_made_of() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    for name in ("VERSION", "REVISION"):
        assert f'org.opencontainers.image.{name.lower()}="${name}"' in last.partition(f"\nARG {name}=")[2]


def test_torch_is_installed_anew_only_with_another_pin() -> None:
    """Its layer comes after nothing of the context but the lines of its pins."""
    (before,) = re.findall(r"^FROM build AS dependencies\n(.+?)--requirement torch\.txt$", DOCKERFILE, re.M | re.S)
    assert re.findall(r"^(?:COPY|ADD) .*", before, re.MULTILINE) == ["COPY --from=pins /build/torch.txt ./"]
    (pattern,) = re.findall(r"grep -E '(.+)' constraints\.txt > torch\.txt", DOCKERFILE)
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if re.search(pattern, line)]
    assert [line.partition("==")[0] for line in lines] == ["torch", "torchvision"]


def test_pip_keeps_nothing_in_a_layer() -> None:
    runs = re.findall(r"^RUN (?:.*\\\n)*.*$", DOCKERFILE, re.MULTILINE)
    by_pip = [run for run in runs if re.search(r"\bpip\b.* (install|wheel)\b", run)]
    assert len(by_pip) == 4
    for run in by_pip:
        assert "--no-cache-dir" in run or "--mount=type=cache,target=/root/.cache/pip" in run


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


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_compose_bounds_what_the_service_takes(name: str) -> None:
    (container,) = pod_specs()["deployment"]["containers"]
    memory = int(COMPOSE["services"][name]["mem_limit"].removesuffix("g"))
    assert memory >= int(container["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert COMPOSE["services"][name]["init"]


def test_no_log_grows_for_ever() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "50m", "max-file": "5"}}, name


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
