"""A GPU without hardware: tensors are fake, with shapes, types and the device cuda:0, and without numbers.

PyTorch runs each operator's rules for them, so a tensor on the wrong device, a wrong shape or a number that is asked
for (on a GPU that waits for it) is an error. What a kernel itself refuses is not seen, nor what it computes, nor
streams, graphs and NCCL. Load the library of `build_fake_gpu` with ctypes before PyTorch is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from bertline.training.data.collation import MicroBatch

GPU = torch.device("cuda", 0)
TURING, HOPPER = 7, 9
COMPILE = torch.compile


@contextmanager
def on_fake_gpu(capability: int = HOPPER) -> Iterator[FakeTensorMode]:
    """A GPU of this major compute capability: all tensors are fake, and micro-batches come onto it."""
    properties = object.__new__(torch.cuda._CudaDeviceProperties)
    properties.major = capability
    torch.cuda.is_available = lambda: True
    torch.cuda.get_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda state, device=None: None
    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.cuda.device_count = lambda: 1
    torch.cuda._get_device_properties = lambda device: properties
    torch.cuda.set_device = lambda device: None
    # Traced forward and backward; to make kernels of it needs a GPU.
    torch.compile = partial(COMPILE, backend="aot_eager")
    torch.cuda.manual_seed_all = lambda seed: None
    MicroBatch.pinned = lambda self: self
    with FakeTensorMode() as mode:
        MicroBatch.to = lambda self, device: self._map(
            lambda tensor: mode.from_tensor(tensor).to(device, non_blocking=True)
        )
        yield mode


class HostReads(TorchDispatchMode):
    """Reading a number on the host is allowed, because it does not wait for a GPU: it is 1."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "cpu":
            return 1.0
        return function(*args, **(kwargs or {}))


def moved(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """`model` on the GPU; `Module.to` cannot make real parameters fake."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(mode.from_tensor(weight).detach().to(GPU)))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, mode.from_tensor(buffer).to(GPU))
    return model
