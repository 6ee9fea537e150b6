"""Run in a process of its own, by path: what torch says of this machine, as one JSON line."""

import json
import platform


def look() -> dict[str, object]:
    import torch
    import torch.distributed as dist

    found: dict[str, object] = {
        "version": torch.__version__,
        "cuda_build": torch.version.cuda,
        "hip_build": torch.version.hip,
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": dist.is_available() and dist.is_nccl_available(),
        "mps": torch.backends.mps.is_available(),
        "threads": torch.get_num_threads(),
        "devices": [],
    }
    if torch.cuda.is_available():
        found["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
        devices = []
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            free, total = torch.cuda.mem_get_info(index)
            devices.append(
                {
                    "name": about.name,
                    "capability": f"{about.major}.{about.minor}",
                    "free": free,
                    "total": total,
                    "peers": [
                        other
                        for other in range(torch.cuda.device_count())
                        if other != index and torch.cuda.can_device_access_peer(index, other)
                    ],
                }
            )
        found["devices"] = devices
    return found


if __name__ == "__main__":
    print(json.dumps(look() | {"machine": platform.machine()}))
