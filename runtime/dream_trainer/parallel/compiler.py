"""What `DeviceParameters` says to the compiler, before any block is compiled."""

from ..world import World


def configure_compiler(world: World) -> None:
    """Set the activation budget, compiled autograd and the overlap of tensor parallelism.

    Overlap (async tensor parallelism) needs symmetric memory, hence CUDA: there it is on
    unless it was refused; elsewhere only an explicit wish is worth a word.
    """
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    parameters = world.parameters
    torch._functorch.config.activation_memory_budget = parameters.activation_memory_budget
    torch._dynamo.config.compiled_autograd = parameters.compiled_autograd
    if world.axes.tp == 1 or parameters.async_tensor_parallel is False:
        return
    if world.device.type == "cuda":
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group

        torch._inductor.config._micro_pipeline_tp = True
        enable_symm_mem_for_group(world.mesh.get_group("tp").group_name)
    elif parameters.async_tensor_parallel and world.is_rank_zero:
        print(f"async_tensor_parallel=True has no effect on {world.device.type}: it needs CUDA.")
