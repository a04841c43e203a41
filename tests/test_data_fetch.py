"""Packages are fetched by npm and apt themselves, here from a registry and an archive on this machine."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_files import noise

from fpet.data import load_dataset
from fpet.data.debian import package_folder
from fpet.data.npm import NpmPackage, npm_folder
from fpet.data.packaged import PACKAGED
from fpet.errors import DataError


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NpmPackage]:
    """A package in a registry on this machine that npm is told to use."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    source = tmp_path / "source"
    for name in ("list.json", "img/a.png", "src/left-out.js"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "package.json").write_text('{"name": "drawings-of-a-test", "version": "1.2.3"}')
    subprocess.run(["npm", "pack", "--silent"], cwd=source, check=True, capture_output=True)
    archive = (source / "drawings-of-a-test-1.2.3.tgz").read_bytes()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            dist = {"tarball": f"http://127.0.0.1:{server.server_port}/it.tgz", "integrity": integrity}
            version = {"name": "drawings-of-a-test", "version": "1.2.3", "dist": dist}
            known = {"name": "drawings-of-a-test", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}
            body = archive if self.path.endswith(".tgz") else json.dumps(known).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
        yield NpmPackage("drawings-of-a-test", "1.2.3", integrity, ("list.json", "img/"))
        server.shutdown()


def test_an_npm_package_is_fetched_once_and_only_what_is_wanted(registry: NpmPackage, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    root = npm_folder(registry, None, cache)
    files = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}
    assert files == {"list.json": "list.json", "img/a.png": "img/a.png"}
    assert [path.name for path in cache.iterdir()] == ["drawings-of-a-test"]
    before = root.stat().st_mtime_ns
    assert npm_folder(registry, None, cache).stat().st_mtime_ns == before


def test_an_npm_package_other_than_the_published_one_is_refused(registry: NpmPackage, tmp_path: Path) -> None:
    other = NpmPackage(registry.name, registry.version, "sha512-AAAA", registry.wanted)
    with pytest.raises(DataError, match=r"drawings-of-a-test-1.2.3.tgz is not the published file.*sha512-AAAA"):
        npm_folder(other, None, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_why_npm_fetched_nothing_is_said(registry: NpmPackage, tmp_path: Path) -> None:
    other = NpmPackage("a-package-that-is-not-there", "1.0.0", registry.integrity, registry.wanted)
    with pytest.raises(DataError, match=r"failed: npm (error|ERR!) code E"):
        npm_folder(other, None, tmp_path / "cache")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Debian package in an archive on this machine that apt is told to use."""
    if any(shutil.which(tool) is None for tool in ("apt-get", "dpkg-deb")):
        pytest.skip("apt-get and dpkg-deb are not installed")
    noise(tmp_path / "source" / "usr" / "share" / "pictures" / "a.png")
    control = (
        "Package: pictures-of-a-test\nVersion: 1.0\nArchitecture: all\nMaintainer: a test\nDescription: pictures\n"
    )
    (tmp_path / "source" / "DEBIAN").mkdir()
    (tmp_path / "source" / "DEBIAN" / "control").write_text(control)
    package = tmp_path / "archive" / "pictures-of-a-test_1.0_all.deb"
    package.parent.mkdir()
    subprocess.run(["dpkg-deb", "-b", tmp_path / "source", package], check=True, capture_output=True)
    content = package.read_bytes()
    listed = f"Filename: ./{package.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    (package.parent / "Packages").write_text(control + listed)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{package.parent} ./\n")
    for folder in ("state/lists/partial", "apt-cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": "sources.list",
        "Dir::Etc::SourceParts": "none",
        "Dir::State": "state",
        "Dir::Cache": "apt-cache",
    }
    lines = [f'{name} "{tmp_path / value}";' for name, value in settings.items()]
    (tmp_path / "apt.conf").write_text("\n".join([*lines, 'APT::Sandbox::User "root";', ""]))
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    subprocess.run(["apt-get", "update"], check=True, capture_output=True)


@pytest.mark.usefixtures("archive")
def test_a_debian_package_is_fetched_and_looked_into(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = package_folder("pictures-of-a-test", "usr/share/pictures", None, cache)
    assert [path.name for path in folder.iterdir()] == ["a.png"]
    assert package_folder("pictures-of-a-test", "usr/share", cache / "pictures-of-a-test", tmp_path) == folder.parent
    with pytest.raises(DataError, match=r"no .*usr/share/icons, which the Debian package pictures-of-a-test should"):
        package_folder("pictures-of-a-test", "usr/share/icons", None, tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package manager can be found."""
    (tmp_path / "no-commands").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no-commands"))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("source", PACKAGED)
def test_what_cannot_be_fetched_is_said_with_what_to_do(source: str, tmp_path: Path) -> None:
    tool, advice = ("npm", "install npm") if source == "emoji" else ("apt-get", "run 'apt-get update'")
    with pytest.raises(DataError, match=rf"cannot be fetched .*there is no {tool} on this machine.*{advice}"):
        load_dataset(source, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(DataError, match=r"there is no .*elsewhere"):
        load_dataset(source, folder=tmp_path / "elsewhere")
