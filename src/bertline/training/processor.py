"""What the processor computes quickly."""

from __future__ import annotations

from pathlib import Path

# The kernel's names of matrix and vector products of bf16 that are faster than those of fp32: AMX, Arm's extension.
FAST = {"amx_bf16", "bf16"}
AVX512 = "avx512_bf16"  # fast on AMD only: an Intel Sapphire Rapids without AMX multiplies at half the rate of fp32


def has_fast_bf16(information: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether Linux lists instructions that make bf16 faster than fp32."""
    words = set(information.read_text(errors="replace").split()) if information.exists() else set()
    return bool(FAST & words) or {AVX512, "AuthenticAMD"} <= words
