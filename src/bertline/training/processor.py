"""What the processor computes quickly."""

from __future__ import annotations

from pathlib import Path

# The kernel's names of bf16 matrix or vector products: AVX-512 and AMX on x86, Arm's extension.
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def has_bf16(information: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether Linux lists instructions for bf16; other processors are faster in fp32."""
    return information.exists() and bool(BF16_FLAGS & set(information.read_text(errors="replace").split()))
