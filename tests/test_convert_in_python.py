"""The conversions of `fpet convert`, called from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from peft_models import logits_of_task, save_timm_backbone, timm_model, tuned
from published_files import CLASSES, DIM, options, save_small_backbone, written
from small import small_backbone

from fpet import FpetError, Method, Task, load_backbone
from fpet.cli import main
from fpet.convert import Published, Supplement, from_peft, from_published, published_bytes


def test_a_published_file_becomes_the_task_that_the_command_makes_and_comes_back(tmp_path: Path) -> None:
    source, backbone = tmp_path / "source.bin", tmp_path / "backbone.safetensors"
    written(source, "lora", 32)
    save_small_backbone(backbone)
    command = ["convert", str(source), "--backbone", str(backbone), "--output", str(tmp_path / "task.safetensors")]
    assert main([*command, "--reducer", "bsm", *options("lora", 32)]) == 0
    (tmp_path / "python").mkdir()
    output = tmp_path / "python" / "task.safetensors"
    published = Published("lora", DIM, 0.5, classes=CLASSES)
    header = from_published(source, output, small_backbone(), published, Supplement(reducer=Method("bsm")))
    task = Task.load(output)
    assert output.read_bytes() == (tmp_path / "task.safetensors").read_bytes()
    assert (header.name, task.header.labels) == ("task", ("0", "1", "2", "3", "4"))
    assert published_bytes(task, small_backbone()) == source.read_bytes()


def test_a_peft_checkpoint_gets_the_labels_and_the_name_that_are_given(tmp_path: Path) -> None:
    tuned(timm_model(), "head", ["qkv"]).save_pretrained(tmp_path / "peft")
    backbone = load_backbone(save_timm_backbone(timm_model(), tmp_path / "backbone.safetensors"))
    labels = ("ant", "bee", "cat", "dog", "elk")
    output = tmp_path / "task.safetensors"
    from_peft(tmp_path / "peft", output, backbone, Supplement(name="beasts", labels=labels), interpolation="bilinear")
    header = Task.load(output).header
    assert (header.name, header.labels, header.preprocessing.interpolation) == ("beasts", labels, "bilinear")
    assert logits_of_task(output, tmp_path / "backbone.safetensors").shape == (4, CLASSES)


def test_an_adapter_with_a_name_is_found_a_folder_below(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tuned(timm_model(), "head", ["qkv"])
    model.add_adapter("mine", model.peft_config["default"])
    model.save_pretrained(tmp_path / "peft", selected_adapters=["mine"])
    backbone, task = save_timm_backbone(timm_model(), tmp_path / "backbone.safetensors"), tmp_path / "task.safetensors"
    said = f"{tmp_path / 'peft'}: there is no adapter_config.json; give {tmp_path / 'peft' / 'mine'}, which has one"
    with pytest.raises(FpetError, match=f"^{said}$"):
        from_peft(tmp_path / "peft", task, load_backbone(backbone))
    command = ["--backbone", str(backbone), "--output", str(task)]
    assert main(["convert", str(tmp_path / "peft"), *command]) == 2
    assert capsys.readouterr().err == f"fpet: {said}\n"
    assert main(["convert", str(tmp_path / "peft" / "mine"), *command]) == 0


@pytest.mark.parametrize(
    ("classes", "supplement", "message"),
    [
        (None, Supplement(), "source.bin: the file does not say its classes"),
        (CLASSES, Supplement(labels=("a", "b")), "source.bin: 2 labels for 5 classes"),
        (CLASSES, Supplement(name="Not A Name"), "source.bin: .*'Not A Name'"),
        (CLASSES, Supplement(reducer=Method("bdm")), "the token reduction bdm has weights of its own"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_said(
    classes: int | None, supplement: Supplement, message: str, tmp_path: Path
) -> None:
    written(tmp_path / "source.bin", "lora", 32)
    published = Published("lora", DIM, 0.5, classes=classes)
    with pytest.raises(FpetError, match=message):
        from_published(tmp_path / "source.bin", tmp_path / "task.safetensors", small_backbone(), published, supplement)
    assert not (tmp_path / "task.safetensors").exists()
