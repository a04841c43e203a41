"""What the container files say agrees with the service and with one another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from manifests import COMPONENTS, CORE, CUSTOM, OPERATING, PORT, ROOT, manifest, pod_specs
from serving import Serving

from service.ending import longest_end
from service.settings import PREFIX, Settings

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
CHANGING = yaml.safe_load((ROOT / "docker/compose.tasks.yml").read_text())
PROMETHEUS = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yml").read_text())
PROVISIONING = ROOT / "docker/grafana/provisioning"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OWN_SERVICES = ("fpet", "fpet-gpu")


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
