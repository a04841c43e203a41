"""`docs/task-files.md` says what a reader of task files has to know."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
from safetensors import safe_open

from fpet import Task, default_backbone, load_backbone
from fpet.embedded import tasks_folder
from fpet.quantize import codebook

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "task-files.md").read_text()
FILES = sorted(tasks_folder().glob("*.safetensors"))


def test_the_page_names_the_fields_of_a_header() -> None:
    named = {name for row in re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    for path in FILES:
        with safe_open(path, "pt") as file:
            assert list(file.metadata()) == ["fpet"]
            header = json.loads(file.metadata()["fpet"])
        assert header.keys() == named
        assert header["name"] == path.stem
        assert {part for part in header["backbone"] if f"`{part}`" not in PAGE} == set()
        assert {part for part in header["preprocessing"] if f"`{part}`" not in PAGE} == set()
        least = {name: value for name, value in header.items() if name not in ("head", "provenance", "format")}
        assert Task.load(path).header.from_json(json.dumps(least)).name == path.stem


def test_low_bit_weights_are_stored_as_the_page_says() -> None:
    backbone = load_backbone(default_backbone())
    path = next(path for path in FILES if path.stem == "thai")
    weights = dict(Task.load(path).build(backbone).trainable().named_parameters())
    found = 0
    with safe_open(path, "np") as file:
        for name in file.keys():  # noqa: SIM118  # it is no mapping
            assert name.split(".")[0] in ("adapter", "reducer", "head")
            if not name.endswith(".codes"):
                continue
            matrix, (mean, deviation) = name.removesuffix(".codes"), file.get_tensor(name.replace(".codes", ".stats"))
            bits = np.unpackbits(file.get_tensor(name), bitorder="little")[: weights[matrix].numel()]
            values = codebook(1).codes.numpy()[bits] * deviation + mean
            assert np.array_equal(values.reshape(weights[matrix].shape), weights[matrix].numpy())
            found += 1
    assert found == 26


def test_the_fingerprint_is_the_one_that_the_page_describes() -> None:
    digest = hashlib.sha256()
    for name, value in sorted(load_backbone(default_backbone()).vit.state_dict().items()):
        assert "head" not in name
        digest.update(f"{name} {list(value.shape)}\n".encode() + value.numpy().astype("<f4").tobytes())
    for path in FILES:
        assert Task.load(path).header.backbone.fingerprint == digest.hexdigest()
