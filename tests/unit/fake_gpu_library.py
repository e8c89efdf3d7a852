"""Build of fake_gpu.cpp. Imports no PyTorch: the library must be loaded before it."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_gpu.cpp")


def build_fake_gpu(folder: Path) -> Path:
    """Compile the library into `folder`; return its path."""
    specification = find_spec("torch")
    assert specification is not None
    assert specification.origin is not None
    torch_folder = Path(specification.origin).parent
    compiler = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch_folder / 'include'}"]
    linked = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch_folder / 'lib'}"]
    library = folder / "fake_gpu.so"
    subprocess.run([*compiler, SOURCE, "-o", library, *linked], check=True)
    return library
