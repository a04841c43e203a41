"""Parameter-efficient tuning of frozen Vision Transformers with token reduction (FPET, CVPR 2025)."""

from importlib.metadata import version


def __getattr__(name: str) -> str:
    """`__version__`, which only an installed package has."""
    if name == "__version__":
        return version("fpet-serve")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
