"""The name of the processor."""

import platform
from pathlib import Path

import pytest

from harness.hardware.cpus import cpu_model


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("fpu sse2 avx2", "AMD EPYC (AVX2)"),
        ("fpu avx2 avx512f", "AMD EPYC (AVX-512)"),
        ("fpu avx2 avx512f avx512_bf16", "AMD EPYC (AVX-512 with bfloat16)"),
        ("avx2 avx512f avx512_bf16 amx_bf16", "AMD EPYC (AMX)"),
        ("fpu sse2", "AMD EPYC"),
    ],
)
def test_a_processor_is_named_with_its_widest_vectors(tmp_path: Path, flags: str, name: str) -> None:
    (tmp_path / "proc").mkdir()
    one = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\n"
    (tmp_path / "proc" / "cpuinfo").write_text(one + one.replace(": 0", ": 1"))
    assert cpu_model(tmp_path) == name


def test_without_its_name_the_platform_answers(tmp_path: Path) -> None:
    assert cpu_model(tmp_path) == (platform.processor() or platform.machine())
