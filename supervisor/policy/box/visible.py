"""Which GPU a program will use, by what CUDA lets it see: `CUDA_VISIBLE_DEVICES`, its own or the one that the daemon has.

First match wins, for the place in the list that the program takes (the first, unless it says `cuda:N`):

| the entry | the GPU |
|---|---|
| there is no such variable | the one of that index, as NVML counts |
| every entry from the first that is no GPU here on | none: CUDA stops reading there |
| an index | that one |
| `GPU-` and the beginning of a UUID | the one GPU whose UUID begins so |
| `MIG-GPU-<UUID>/...` | the GPU that the slice is of |
| `MIG-<UUID>` of a slice, a UUID that is not here, empty, `-1` | none that could be watched |

Worked example: the daemon was started with CUDA_VISIBLE_DEVICES=2,3 and Pong pins nothing: it waits for the memory of GPU
2. With CUDA_VISIBLE_DEVICES= (empty) it sees no GPU, and waits for none.

Why not simply GPU 0: on a box that is shared by that variable, GPU 0 is just the one that somebody else uses; a gate that
watches it holds everyone back, or nobody, for no reason. An index counts by the bus, as NVML does: CUDA itself counts by
speed unless CUDA_DEVICE_ORDER says otherwise, which differs only where the GPUs do.
"""

from __future__ import annotations

from supervisor.policy.box.readings import Gpu, Gpus


def gpu_seen(visible: str | None, place: int, gpus: Gpus | None) -> int | None:
    """The index, as NVML counts, of the GPU at a place of the list; None: none that could be watched."""
    if visible is None:
        return place
    known = () if gpus is None else gpus.gpus or ()
    seen: list[int] = []
    for entry in visible.split(","):
        index = _index(entry.strip(), known)
        if index is None:
            break
        seen.append(index)
    return seen[place] if place < len(seen) else None


def _index(entry: str, gpus: tuple[Gpu, ...]) -> int | None:
    if entry.isdecimal():
        return int(entry)
    slice_of = entry.removeprefix("MIG-").partition("/")[0] if entry.startswith("MIG-GPU-") else entry
    if len(slice_of) <= len("GPU-") or not slice_of.startswith("GPU-"):
        return None
    found = [gpu.index for gpu in gpus if gpu.uuid.startswith(slice_of)]
    return found[0] if len(found) == 1 else None
