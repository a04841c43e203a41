"""The face of the library: what `fpet` has under its own name, and methods that other packages add to it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import fpet
from fpet.adapters import ADAPTERS
from fpet.adapters.base import Adapter
from fpet.errors import UnsupportedError
from fpet.registry import Registry, checked

GUIDE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
REDUCER = """import torch

from fpet.reducers.none import NoReduction

HALF = torch.tensor(0.5)


class Nothing(NoReduction):
    pass


class Chosen(NoReduction):
    def __init__(self, geometry, layout, *, share: float, block: int) -> None:
        super().__init__(geometry, layout)
"""


def declared() -> dict[str, str]:
    """Name -> module, as type checkers and editors read it."""
    tree = ast.parse(Path(fpet.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("name", fpet.__all__)
def test_a_name_is_that_of_its_module(name: str) -> None:
    assert getattr(fpet, name) is getattr(import_module(declared()[name]), name)
    assert name in dir(fpet)


def test_type_checkers_see_the_same_names() -> None:
    assert declared().keys() == set(fpet.__all__)


def test_no_name_is_that_of_a_module() -> None:
    """It would be the one or the other, by what was imported before."""
    assert [name for name in fpet.__all__ if find_spec(f"fpet.{name}")] == []


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'fpet' has no attribute 'load_backbones'"):
        fpet.load_backbones  # noqa: B018


def test_the_package_alone_imports_no_torch() -> None:
    script = "import sys, fpet; dir(fpet), fpet.__version__; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
    subprocess.run([sys.executable, "-c", "from fpet import *; load_backbone(default_backbone())"], check=True)


def install(folder: Path, name: str, entries: str, modules: dict[str, str]) -> None:
    """Puts into a folder what pip would."""
    described = folder / f"{name.replace('-', '_')}-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (described / "entry_points.txt").write_text(entries)
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)


def test_methods_of_installed_packages_are_known(tmp_path: Path) -> None:
    adapter, reducer = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    (described_as,) = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    project = tomllib.loads(described_as)
    assert project["tool"]["setuptools"]["py-modules"] == ["lora_v", "bsm_x"]
    points = project["project"]["entry-points"]
    points["fpet.reducers"] |= {"nothing": "bare:Nothing", "chosen": "bare:Chosen"}
    entries = "".join(
        f"[{group}]\n" + "".join(f"{kind} = {place}\n" for kind, place in methods.items())
        for group, methods in points.items()
    )
    install(tmp_path, "fpet-more", entries, {"lora_v": adapter, "bsm_x": reducer, "bare": REDUCER})
    # A package may well be imported before what it adds to.
    script = (
        "import sys, lora_v; from fpet.cli import main; code = main(['methods', '--json']);"
        "import bare; sys.exit(code or bare.HALF.is_meta)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    described = {(row["role"], row["kind"]): row for row in json.loads(done.stdout)}
    assert described["adapter", "lora-v"]["arguments"] == {"dim": 8, "scale": 1.0}
    assert described["adapter", "lora-v"]["parameters"] == 12 * 2 * 768 * 8
    assert described["adapter", "lora-v"]["source"].startswith("LoRA on the values alone")
    assert described["reducer", "bsm-x"]["source"].startswith("Bipartite soft matching by the tokens")
    assert (described["reducer", "bsm-x"]["parameters"], described["reducer", "bsm-x"]["tokens"]) == (0, 99)
    assert described["reducer", "nothing"]["source"] == ""
    assert described["reducer", "nothing"]["tokens"] == 197
    chosen = described["reducer", "chosen"]
    assert chosen["arguments"] == {"share": None, "block": None}
    assert [chosen[of] for of in ("parameters", "tokens", "foldable", "refuses")] == [None, None, None, []]


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("lora = broken:Method", "there is a 'lora' already, of fpet"),
        ("mine = broken:Method", "cannot be loaded: RuntimeError: out of order"),
        ("mine = missing:Method", "cannot be loaded: ModuleNotFoundError: No module named 'missing'"),
        ("mine = json:loads", "is no Adapter"),
        ("mine = json:JSONDecoder", "is no Adapter"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    entry: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "fpet-more", f"[fpet.adapters]\n{entry}\n", {"broken": "raise RuntimeError('out of order')"})
    monkeypatch.syspath_prepend(tmp_path)
    own = {"lora": ADAPTERS["lora"]}
    registry = Registry("fpet.adapters", Adapter, own)
    kind, value = entry.split(" = ")
    with pytest.raises(
        UnsupportedError, match=f"^{value}, which fpet-more has as '{kind}' of fpet.adapters.* {error}$"
    ):
        [registry[name] for name in registry]
    assert registry["lora"] is own["lora"]  # which serves all the same


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ("dim=8", "the argument 'dim' is not annotated as what JSON holds: bool, .*"),
        ("dims: tuple[int, int] = (4, 4)", "the argument 'dims' is not annotated as .*"),
        ("dims: list[tuple] = []", "the argument 'dims' is not annotated as .*"),
        ("mode: Literal['a', 'b'] = 'a'", "the argument 'mode' is not annotated as .*"),
        ("dim: int = None", "the default dim = None is not of type int"),
        ("dim: Unknown", "name 'Unknown' is not defined"),
    ],
)
def test_arguments_that_a_task_file_cannot_give_back_are_refused(
    argument: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a training, not when its file is read."""
    with pytest.raises(UnsupportedError, match=f"^odd:Odd, which fpet-odd has as 'odd' of fpet.adapters: {error}$"):
        odd_adapter(argument, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("argument", "given"),
    [("dim: Optional[float] = None", 3), ("blocks: list[int] = (1, 2)", [3]), ("mode: str | None = 'a'", None)],
)
def test_arguments_that_it_can_are_taken(
    argument: str, given: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = odd_adapter(argument, tmp_path, monkeypatch)
    name = argument.partition(":")[0]
    assert checked(registry, "odd", {name: given}) is registry["odd"]
    with pytest.raises(UnsupportedError, match=f"odd: {name} = {{}} is not of type"):
        checked(registry, "odd", {name: {}})


def odd_adapter(argument: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Adapter]:
    """A registry whose method `odd`, looked at already, takes that argument."""
    lines = (
        "from __future__ import annotations",
        "from typing import Literal, Optional",
        "from fpet.adapters.base import Adapter",
        "class Odd(Adapter):",
        f"    def __init__(self, geometry, *, {argument}): pass",
    )
    install(folder, "fpet-odd", "[fpet.adapters]\nodd = odd:Odd\n", {"odd": "\n".join(lines)})
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    registry = Registry("fpet.adapters", Adapter, {})
    assert registry["odd"]
    return registry


def test_two_packages_with_one_kind_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "fpet-more", "[fpet.adapters]\nmine = a:Mine\n", {})
    install(tmp_path, "fpet-other", "[fpet.adapters]\nmine = b:Mine\n", {})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedError, match=r"^b:Mine, which fpet-other has .* already, of fpet-more$"):
        list(Registry("fpet.adapters", Adapter, {}))
