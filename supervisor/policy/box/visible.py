"""Which GPU a program will use, by the GPUs that CUDA shows it: `CUDA_VISIBLE_DEVICES`, its own or the daemon's.

The program takes one place in the list: the first, unless it says `cuda:N`. First match wins for the entry at that place:

| the entry | the GPU |
|---|---|
| there is no such variable | the GPU of that index, as NVML counts |
| the first entry that is no GPU of this box, and every entry after it | none: CUDA stops reading there |
| an index | the GPU of that index |
| `GPU-` and the beginning of a UUID | the only GPU whose UUID begins so |
| `MIG-GPU-<UUID>/...` | the GPU that the slice belongs to |
| `MIG-<UUID>` of a slice, a UUID that is not here, empty, `-1` | none that can be watched |

Worked example: the daemon was started with CUDA_VISIBLE_DEVICES=2,3 and Pong pins no GPU: it waits for the memory of GPU
2. With CUDA_VISIBLE_DEVICES= (empty) it sees no GPU, and waits for none.

Why not simply GPU 0: on a box whose GPUs are shared out by that variable, GPU 0 is likely in use by somebody else. A gate
that watches it stops all programs, or none, for no reason. An index counts by the bus, as NVML does. CUDA itself counts
by speed unless CUDA_DEVICE_ORDER says otherwise; the two orders differ only where the GPUs differ.
"""

from __future__ import annotations

from supervisor.policy.box.readings import Gpu, Gpus


def gpu_seen(visible: str | None, place: int, gpus: Gpus | None) -> int | None:
    """The index, as NVML counts, of the GPU at a place of the list; None: there is none that can be watched."""
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


def hides_all(visible: str | None, place: int, gpus: Gpus | None) -> bool:
    """Whether CUDA certainly shows no GPU at this place. Of a slice without its GPU's UUID that is not known."""
    if visible is None or gpus is None or not gpus.gpus or "MIG-" in visible.replace("MIG-GPU-", ""):
        return False
    index = gpu_seen(visible, place, gpus)
    return index is None or gpus.of(index) is None


def _index(entry: str, gpus: tuple[Gpu, ...]) -> int | None:
    if entry.isdecimal():
        return int(entry)
    slice_of = entry.removeprefix("MIG-").partition("/")[0] if entry.startswith("MIG-GPU-") else entry
    if len(slice_of) <= len("GPU-") or not slice_of.startswith("GPU-"):
        return None
    found = [gpu.index for gpu in gpus if gpu.uuid.startswith(slice_of)]
    return found[0] if len(found) == 1 else None
