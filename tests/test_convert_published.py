"""Published files that are damaged, of another method or not described: one line, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published_files import CHANNELS, DIM, options, save_small_backbone, written
from small import small_backbone, small_header

from fpet.cli import main
from fpet.convert.catalog import look_up
from fpet.header import Method
from fpet.task import new_model, save_task

Refusal = Callable[..., str]


@pytest.fixture
def refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Converts in vain: exit code 2, nothing written; returns the one line that says why."""
    backbone = save_small_backbone(tmp_path / "backbones" / "small.safetensors")

    def convert(source: Path, *more: str) -> str:
        before = sorted(tmp_path.iterdir())
        output = tmp_path / ("output.bin" if "published" in more else "output.safetensors")
        files = ["--backbone", str(backbone), "--output", str(output)]
        assert main(["convert", str(source), *files, *more]) == 2
        assert sorted(tmp_path.iterdir()) == before
        error = capsys.readouterr().err
        assert error.startswith("fpet: ")
        assert error.count("\n") == 1
        return error

    return convert


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def nonsense(path: Path) -> None:
    path.write_bytes(b"\xff" * len(path.read_bytes()))


def negative(path: Path) -> None:
    """The first deviation's sign bit; 12 bytes of codes and 4 of the mean lie before it."""
    data = bytearray(path.read_bytes())
    data[DIM * CHANNELS // 8 + 7] |= 0x80
    path.write_bytes(bytes(data))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("damage", "more", "message"),
    [
        (cut, [], "bytes; lora with"),
        (lengthened, [], "bytes; lora with"),
        (nonsense, [], "no values for 'adapter.blocks.0.q.down.weight.stats'"),
        (negative, [], "no values for 'adapter.blocks.0.q.down.weight.stats'"),
        (None, ["--adapter", "adaptformer"], "bytes; adaptformer with"),
        (None, ["--dim", "8"], "bytes; lora with"),
        (None, ["--dim", str(10**9)], "bytes; lora with"),
        (None, ["--dim", str(10**400)], "make no model"),
        (None, ["--classes", str(10**12)], "cannot hold a head of 1000000000000 classes"),
        (None, ["--classes", "6"], "6 classes and a head of 32 bits"),
        (None, ["--bits", "32"], "quantised matrices of whole bytes"),
        (None, ["--head-bits", "7"], "bits = 7"),
        (None, ["--scale", "nan"], "scale"),
        (None, ["--name", "Not A Name"], "'Not A Name'"),
        (None, ["--catalog", "none.json"], "none.json: cannot be read"),
        (None, ["--labels", "none.txt"], "none.txt: cannot be read"),
        (None, ["--reducer", "bdm", "--reducer-arguments", "block=0"], "reduction bdm has weights of its own"),
        (None, ["--library", "timm"], "--library has no meaning for"),
        (None, ["--to", "peft"], "--to has no meaning for"),
        (None, ["--interpolation", "bicubic"], "--interpolation has no meaning for"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    damage: Any, more: list[str], message: str, tmp_path: Path, refusal: Refusal
) -> None:
    source = tmp_path / "kitti.bin"
    written(source, "lora", 32)
    if damage is not None:
        damage(source)
    assert message in refusal(source, *options("lora", 32), *more)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(b"a\nb\n", "2 labels for 5 classes"), (b"a\n\nb\nc\nd\n", "4 labels for 5"), (b"\xff", "is not text in UTF-8")],
)
def test_wrong_labels_are_refused(labels: bytes, message: str, tmp_path: Path, refusal: Refusal) -> None:
    written(tmp_path / "kitti.bin", "lora", 32)
    (tmp_path / "labels.txt").write_bytes(labels)
    assert message in refusal(tmp_path / "kitti.bin", *options("lora", 32), "--labels", str(tmp_path / "labels.txt"))


def test_an_entry_is_found_by_whatever_way_leads_to_its_file(tmp_path: Path) -> None:
    entry = {"method": "lora", "hidden_dim": 4, "scale": 1.0, "bits": 1, "head_bits": 32, "num_classes": 5}
    for folder in ("blobs", "snapshot", "catalogs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "blobs" / "1f2e").write_bytes(b"")
    link = tmp_path / "snapshot" / "kitti.bin"
    link.symlink_to("../blobs/1f2e")  # as a cache of Hugging Face has it
    for catalog, file in ((link.parent, "kitti.bin"), (tmp_path / "catalogs", "../snapshot/kitti.bin")):
        (catalog / "catalog.json").write_text(json.dumps([{"file": file, **entry}]))
        assert look_up(str(catalog / "catalog.json"), str(link)).classes == 5


@pytest.mark.parametrize("missing", ["--adapter", "--dim", "--scale", "--classes"])
def test_what_a_file_does_not_say_must_be_given(missing: str, tmp_path: Path, refusal: Refusal) -> None:
    written(tmp_path / "kitti.bin", "lora", 32)
    given = options("lora", 32)
    at = given.index(missing)
    assert missing in refusal(tmp_path / "kitti.bin", *given[:at], *given[at + 2 :])


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ("[", "not JSON"),
        ("{}", "not a JSON list"),
        ("[3]", "entry 0: not a JSON object"),
        ("[]", "there is no entry for"),
        ('[{"file": "kitti.bin"}]', "entry 0: the field 'method' is missing"),
        ('[{"file": "kitti.bin", "method": "lora", "hidden_dim": true}]', "hidden_dim = True"),
        ('[{"file": "kitti.bin", "method": "lora", "hidden_dim": 4, "scale": 1e999}]', "scale is not finite"),
    ],
)
def test_a_wrong_catalog_is_refused(catalog: str, message: str, tmp_path: Path, refusal: Refusal) -> None:
    written(tmp_path / "kitti.bin", "lora", 32)
    (tmp_path / "catalog.json").write_text(catalog)
    assert message in refusal(tmp_path / "kitti.bin", "--catalog", str(tmp_path / "catalog.json"))


@pytest.mark.parametrize(
    ("adapter", "reducer", "message"),
    [
        (Method("repadapter", {"dim": 4}), Method("none"), "not repadapter"),
        (Method("lora", {"dim": 4, "bits": 1, "targets": "q+k"}), Method("none"), "of queries and values"),
        (
            Method("lora", {"dim": 4, "bits": 1}),
            Method("bdm", {"block": 0, "dim": 4}),
            "the weights of the token reduction bdm",
        ),
        (Method("lora", {"dim": 4}), Method("none"), "has 3072 bits"),
    ],
)
def test_a_task_that_no_such_file_can_hold_is_refused(
    adapter: Method, reducer: Method, message: str, tmp_path: Path, refusal: Refusal
) -> None:
    small = small_backbone()
    header = small_header(small, adapter=adapter, reducer=reducer)
    source = tmp_path / "task.safetensors"
    save_task(source, header, new_model(header, small))
    assert message in refusal(source, "--to", "published")


def test_the_backbone_has_to_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "a.bin", tmp_path / "output.safetensors"
    written(source, "lora", 32)
    assert main(["convert", str(source), *options("lora", 32), "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"fpet: {source}: give the --backbone that this adapter was trained on\n"
    assert not output.exists()


def test_a_name_by_which_no_command_would_know_the_output_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    source, task = tmp_path / "a.bin", tmp_path / "a.safetensors"
    written(source, "lora", 32)
    backbone = small_backbone()
    header = small_header(backbone, Method("lora", {"dim": DIM, "bits": 1}), Method("none"))
    save_task(task, header, new_model(header, backbone))
    for output in ("task.bin", "task"):
        error = refusal(source, *options("lora", 32), "--output", str(tmp_path / output))
        assert error == f"fpet: {tmp_path / output}: the name of what this writes ends in .safetensors\n"
    for output in ("copy.safetensors", "copy"):
        error = refusal(task, "--to", "published", "--output", str(tmp_path / output))
        assert error == f"fpet: {tmp_path / output}: the name of what this writes ends in .bin\n"
