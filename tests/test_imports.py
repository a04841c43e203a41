"""Who may import whom: the library knows no service, and each part of it only what it must."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from fpet.adapters import ADAPTERS
from fpet.reducers import REDUCERS

ROOT = Path(__file__).parent.parent
FORBIDDEN: list[tuple[str, tuple[str, ...]]] = [
    ("fpet/**/*.py", ("service", "fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client", "os.environ")),
    ("fpet/adapters/*.py", ("fpet.reducers", "timm")),
    ("fpet/reducers/*.py", ("fpet.adapters", "timm")),
    ("fpet/data/**/*.py", ("fpet.inference", "fpet.training", "fpet.sweeps")),
    ("fpet/hardware/*.py", ("fpet.backbone_files", "fpet.inference", "fpet.training", "fpet.sweeps")),
    ("fpet/backbone_files/*.py", ("fpet.backbone", "fpet.inference", "fpet.training", "fpet.sweeps")),
    ("fpet/inference/*.py", ("fpet.training", "fpet.sweeps")),
    ("fpet/training/*.py", ("fpet.inference", "fpet.sweeps")),
    ("service/batcher.py", ("torch", "fastapi", "starlette", "fpet")),
    ("service/decode.py", ("fastapi", "starlette")),
    ("service/http/*.py", ("torch", "service.engine", "service.model", "service.catalog", "service.tasks")),
    ("service/http/*.py", ("service.runtime", "service.routes", "service.processes")),
    ("service/model/*.py", ("fastapi", "starlette", "service.http", "service.routes")),
    ("service/model/*.py", ("service.runtime", "service.catalog", "service.tasks")),
    ("service/tasks/*.py", ("torch", "fastapi", "starlette", "service.http", "service.routes", "service.runtime")),
    ("service/processes/*.py", ("service.routes",)),
    ("service/v2/*.py", ("fastapi", "starlette")),
    ("service/errors.py", ("service", "fpet")),
    ("service/settings.py", ("service", "fpet")),
    ("service/task_labels.py", ("service", "fpet")),
    ("service/metric*.py", ("torch", "fastapi", "starlette", "fpet")),
]
# What makes timm's modules, and what translates weights of other layouts.
TOUCH_TIMM = {"fpet/backbone_files/timm_models.py", "fpet/backbone_files/names.py"}


def imports_of(path: Path) -> set[str]:
    """Dotted names that a file imports, with `os.environ` and `os.getenv` counted as imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            found |= {"os.environ"} if node.attr in ("environ", "getenv") else set()
    return found


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize(
    ("pattern", "forbidden"), FORBIDDEN, ids=[f"{pattern} {names[0]}" for pattern, names in FORBIDDEN]
)
def test_forbidden_imports(pattern: str, forbidden: tuple[str, ...]) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths
    for path in paths:
        wrong = {name for name in imports_of(path) for package in forbidden if is_within(name, package)}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for folder in ("fpet", "service"):
        for path in (ROOT / folder).rglob("*.py"):
            part = part_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
            needed = {
                part_of(name) for name in imports_of(path) if is_within(name, "fpet") or is_within(name, "service")
            }
            # `from fpet import x` names the package too, which imports its public names only when they are asked for.
            graph.setdefault(part, set()).update(needed - {part, "fpet", "service"})
    assert len(graph) > 50
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names those in a circle


def part_of(name: str) -> str:
    """The package or module just below `fpet` or `service`."""
    return ".".join(name.split(".")[:2])


def test_only_what_makes_a_backbone_touches_timm() -> None:
    touching = {
        str(path.relative_to(ROOT))
        for folder in ("fpet", "service")
        for path in (ROOT / folder).rglob("*.py")
        if any(is_within(name, "timm") for name in imports_of(path))
    }
    assert touching == TOUCH_TIMM


@pytest.mark.parametrize(("package", "registry"), [("fpet.adapters", ADAPTERS), ("fpet.reducers", REDUCERS)])
def test_methods_do_not_import_one_another(package: str, registry: Mapping[str, type]) -> None:
    folder = package.replace(".", "/")
    methods = {method.__module__.rpartition(".")[2] for method in registry.values()}
    for method in methods:
        wrong = {
            name
            for name in imports_of(ROOT / folder / f"{method}.py")
            for other in methods
            if is_within(name, f"{package}.{other}")
        }
        assert not wrong, f"{method} imports {wrong}"
