"""Whether a device gains by bfloat16 is measured, not read off its instructions, and what is slow is said."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from fpet.hardware.precision import bfloat16_speed_up, gains_by_bfloat16, slowness
from service.hardware import name_dtype

CPU = torch.device("cpu")


def test_the_measurement_decides() -> None:
    speed_up = bfloat16_speed_up()
    assert speed_up > 0
    assert speed_up == bfloat16_speed_up()  # not another one for the next who asks
    gains = speed_up > 1.05
    assert gains_by_bfloat16(CPU) == gains
    assert name_dtype("auto", CPU) == ("bfloat16" if gains else "float32")
    assert (slowness("bfloat16", CPU) == "") == gains
    assert slowness("float32", CPU) == ""


def test_the_log_says_what_was_measured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "service.hardware")
    chosen = name_dtype("auto", CPU)
    speed_up = f"{bfloat16_speed_up():.2f}"
    assert caplog.messages == [f"computing in {chosen}: bfloat16 has {speed_up} of the speed of float32 here"]
    name_dtype("float32", CPU)
    assert len(caplog.messages) == 1


def test_it_leaves_the_number_of_threads_as_it_is() -> None:
    bfloat16_speed_up.cache_clear()
    threads = torch.get_num_threads()
    bfloat16_speed_up()
    assert torch.get_num_threads() == threads


def test_of_a_gpu_that_the_driver_is_too_old_for_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first use torch counts what the driver's tools list."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert name_dtype("auto", torch.device("cuda")) == "float32"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN is told to do without instructions of x86")
def test_a_processor_that_emulates_bfloat16_serves_in_float32_and_training_is_told() -> None:
    program = """if True:
        import torch
        from fpet.hardware.precision import bfloat16_speed_up, slowness
        from service.hardware import name_dtype
        cpu = torch.device("cpu")
        assert name_dtype("auto", cpu) == "float32"
        assert name_dtype("bfloat16", cpu) == "bfloat16"
        said = slowness("bfloat16", cpu)
        assert f"a layer has {bfloat16_speed_up():.2f} of the speed that float32 has" in said, said
    """
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
