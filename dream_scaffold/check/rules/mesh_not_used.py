"""A hook shards or splits a model over another mesh than the one that it was handed.

`apply_fully_shard(config)` gets the mesh, the precision of the arithmetic and the offload
policy. `fully_shard` without them takes all ranks as one group and computes in float32:
beside tensor parallelism it fails, beside context parallelism or in HSDP it averages over
the wrong ranks, and `param_dtype` has no effect. `replicate` and `parallelize_module` need
their mesh for the same reason.

Bad:

    def apply_fully_shard(self, config):
        fully_shard(self.model)

    def apply_tensor_parallel(self, tp_mesh):
        parallelize_module(self.model, self.world.mesh, plan)

Good:

    def apply_fully_shard(self, config):
        fully_shard(self.model, **config)

    def apply_tensor_parallel(self, tp_mesh):
        parallelize_module(self.model, tp_mesh, plan)

How to fix: pass on what the hook gets: `**config`, `device_mesh=dp_replicate_mesh`,
`tp_mesh`. `--fix` adds it where nothing is in its place. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Call,
    Configuration,
    Constant,
    Edit,
    Fix,
    Match,
    Path,
    Project,
    Severity,
    Trace,
    Trainer,
    callers,
)

CODE = "DT209"
NAME = "mesh-not-used"
SEVERITY: Severity = "error"

MESHES = ("mesh", "device_mesh", "process_group")

_HOOKS = {
    "apply_fully_shard": ("fully_shard",),
    "apply_replicate": ("replicate", "DistributedDataParallel"),
    "apply_tensor_parallel": ("parallelize_module",),
}

_FSDP = """
    from torch.distributed.fsdp import fully_shard

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )
"""

PASSES = (
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            options = {**config, "reshard_after_forward": False}
            fully_shard(self.model, **options)
    """,
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            self.shard(self.model, config)

        def shard(self, module, given):
            fully_shard(module, mesh=given["mesh"], mp_policy=given["mp_policy"])
    """,
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            fully_shard(self.model, **self.world.fsdp_config())
    """,
    """
    from functools import partial
    from torch.distributed.fsdp import fully_shard

    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            shard = partial(fully_shard, **config)
            shard(self.model)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
    """,
    """
    from torch.distributed.tensor.parallel import parallelize_module

    class MyTrainer(Complete):
        def apply_tensor_parallel(self, tp_mesh):
            parallelize_module(self.model, self.world.mesh["tp"], make_plan())
            with tp_mesh:
                parallelize_module(self.model, parallelize_plan=make_plan())

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )
    """,
)

MATCHES = (
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            fully_shard(self.model, mesh=config["mesh"])
    """,
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            fully_shard(self.model)
    """,
    _FSDP
    + """
    class MyTrainer(Complete):
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                fully_shard(layer, mesh=self.world.mesh, reshard_after_forward=True)
    """,
    """
    from torch.distributed.tensor import parallel as tp

    class MyTrainer(Complete):
        def apply_tensor_parallel(self, tp_mesh):
            tp.parallelize_module(self.model, self.world.mesh, make_plan())

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for hook, verbs in _HOOKS.items():
            for trace in trainer.behaviour.named(hook):
                given = trace.parameters[0] if trace.parameters else ""
                for act, call in trace.calls(*verbs):
                    if not call.is_foreign("torch") or not given:
                        continue
                    if not _uses(act, call, given):
                        yield from _told(trainer, trace, act, call)
                    elif hook == "apply_fully_shard" and _has_mesh_alone(call):
                        yield from _imprecise(trainer, trace, act, call)


def _uses(act: Act, call: Call, given: str) -> bool:
    """Whether a call uses what the hook was handed, or may."""
    within = any(guard.kind == "with" for guard in act.guards)
    terms = (*call.arguments[1:], *call.keywords.values())
    if call.last == "parallelize_module":
        return call.is_open or within or not _is_wrong(call)
    if within or any(term.reads(given) or term.is_hidden for term in terms):
        return True
    return any(term.mentions("fsdp_config", "shard_view") for term in terms)


def _has_mesh_alone(call: Call) -> bool:
    """Whether a call names the mesh, and nothing tells it the precision."""
    return not call.is_open and "mesh" in call.keywords and "mp_policy" not in call.keywords


def _imprecise(trainer: Trainer, trace: Trace, act: Act, call: Call) -> Iterator[Match]:
    for config, need in callers(trainer, trace.name):
        precision = config.value("device_parameters.param_dtype")
        if precision != "float32":
            yield Match(
                act.place,
                f"`{call.spot.callee.text}` gets the mesh and no mp_policy: it computes in "
                f"float32, and not in {precision}."
                if precision != "unknown"
                else f"`{call.spot.callee.text}` gets the mesh and no mp_policy: param_dtype "
                "has no effect.",
                f"Pass **{trace.parameters[0]}, which holds both.",
                certain=need and precision != "unknown",
                config=config.name,
                notes=act.notes,
            )


def _is_wrong(call: Call) -> bool:
    """Whether a plan is applied to no mesh, or to the mesh of all axes."""
    mesh = call.argument(1, "device_mesh")
    if isinstance(mesh, Path):
        return mesh.dotted == "self.world.mesh"
    return mesh is None or (isinstance(mesh, Constant) and mesh.value is None)


def _told(trainer: Trainer, trace: Trace, act: Act, call: Call) -> Iterator[Match]:
    given = trace.parameters[0]
    wanted = {
        "apply_fully_shard": f"**{given}",
        "apply_replicate": f"device_mesh={given}",
        "apply_tensor_parallel": given,
    }[trace.name]
    other = next((call.keywords[name] for name in MESHES if name in call.keywords), None)
    # Part of a mesh may well be the very one, though the precision is then left out.
    certain = other is None or isinstance(other, Constant) or _is_whole(other)
    does = {"apply_replicate": "averages gradients over all ranks"}.get(
        trace.name, "works on another mesh than the configuration says"
    )
    for config, need in callers(trainer, trace.name):
        yield Match(
            act.place,
            f"`{call.spot.callee.text}` does not get the {given} of {trace.name}: it {does}.",
            f"Pass {wanted} to every {call.last}.",
            certain=certain and need,
            config=config.name,
            notes=act.notes,
            fix=None if act.via else _fix(trace, call, wanted),
            severity="warning" if _is_harmless(trace, config) else None,
        )


def _is_harmless(trace: Trace, config: Configuration) -> bool:
    """Whether under this configuration all ranks are the mesh, and nothing else is lost."""
    if trace.name == "apply_replicate":
        return not config.is_wide("pp", "tp", "cp")
    whole = config.is_wide("pp", "tp", "cp", "dp_replicate") is False
    precision = config.value("device_parameters.param_dtype")
    offloads = config.value("device_parameters.cpu_offload")
    is_sharding = trace.name == "apply_fully_shard"
    return is_sharding and whole and precision == "float32" and offloads is False


def _is_whole(mesh: object) -> bool:
    return isinstance(mesh, Path) and mesh.dotted == "self.world.mesh"


def _fix(trace: Trace, call: Call, wanted: str) -> Fix | None:
    """One more argument, where the call has only the module."""
    if len(call.arguments) != 1 or call.keywords or trace.name == "apply_tensor_parallel":
        return None
    edit = Edit(call.spot.end, f"{call.spot.separator}{wanted}")
    return Fix(f"Pass {wanted}", (edit,))
