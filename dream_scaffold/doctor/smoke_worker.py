"""One process of the smoke test, run by path: rank, port, backend -> one all-reduce, checked."""

import sys
import time
from datetime import timedelta


def main(rank: int, port: int, backend: str) -> None:
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0, timeout=timedelta(seconds=20))
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    values = torch.full((1 << 20,), float(rank + 1), device=device)
    dist.all_reduce(values)
    started = time.perf_counter()
    for _ in range(3):
        dist.all_reduce(values)
    if backend == "nccl":
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / 3
    right = bool((values == 3.0 * 8).all())
    dist.destroy_process_group()
    if rank == 0:
        print(f"{right} {seconds * 1000:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
