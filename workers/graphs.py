"""CUDA graphs: the launches of an update, and of an action, are recorded once and replayed by one call.

An update of Nature's network is about 150 kernels of microseconds each, and Python needs longer to launch them than the
GPU to run them. A recording works on the same memory each time: inputs are copied there, results are overwritten by the
next call. What is recorded computes the same, to the bit. https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.args import Args
    from workers.precision import Precision

_PLAIN_CALLS: Final = 3  # before a recording: libraries choose their algorithms and allocate their workspaces


def wanted(args: Args, precision: Precision) -> bool:
    """Only on CUDA; not for fp16, whose loss scaling changes what an update launches."""
    return args.cuda_graphs and precision.device.type == "cuda" and precision.dtype is not torch.float16


class Graphed:
    """Calls a function of tensors, by keyword, which waits for nothing. What it does in Python ends when it is recorded.

    Each call passes the function: to keep a learner's own method would keep the learner's memory after its end.
    """

    def __init__(self, precision: Precision, *, wanted: bool, record: Any = None) -> None:
        self._device, self.wanted = precision.device, wanted
        self._record = record or _Recorder()
        self._calls: dict[Any, int] = {}
        self._recorded: dict[Any, tuple[dict[str, torch.Tensor], Callable[[], object], Any]] = {}

    def __call__(self, function: Callable[..., Any], /, **inputs: torch.Tensor) -> Any:
        if not self.wanted:
            return function(**self._moved(inputs))
        key = frozenset((name, tensor.shape, tensor.dtype) for name, tensor in inputs.items())
        if key not in self._recorded:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= _PLAIN_CALLS:
                return self._record.plain(lambda: function(**self._moved(inputs)))
            kept = {name: tensor.clone() for name, tensor in self._moved(inputs).items()}
            try:
                self._recorded[key] = (kept, *self._record(lambda: function(**kept)))
            except RuntimeError as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                self.wanted = False
                first = str(error).strip().partition("\n")[0][:200]
                print(f"workers: launches are not recorded here ({first}): training goes on more slowly", file=sys.stderr)
                return self(function, **inputs)
        kept, replay, result = self._recorded[key]
        for name, tensor in inputs.items():
            kept[name].copy_(tensor, non_blocking=True)
        replay()
        return result

    def _moved(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self._device, non_blocking=True) for name, tensor in inputs.items()}


class _Recorder:
    """Records on a stream of its own, on which the plain calls before it ran too, as PyTorch's notes require."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    def plain(self, function: Callable[[], Any]) -> Any:
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = function()
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def __call__(self, function: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the one that writes a checkpoint, may use the GPU meanwhile.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return graph.replay, result
