"""A hook that runs is still a stub.

Its body is empty, or only raises NotImplementedError. The first fails silently: a model
that `apply_fully_shard` leaves alone is not sharded, and its gradients are never
averaged. The second stops the run at start-up.

Bad:

    def apply_tensor_parallel(self, tp_mesh):
        raise NotImplementedError("Write the plan.")

Good:

    def apply_tensor_parallel(self, tp_mesh):
        parallelize_module(self.model, tp_mesh, plan)

How to fix: write the hook, or turn off the mode that calls it. A stub that no
configuration calls is left alone.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity, Trainer

CODE = "DT202"
NAME = "stub-hook"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            self.model.compile()


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
)

MATCHES = (
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def init_weights(self):
            pass
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            "Compile it."
            raise NotImplementedError("Write it.")


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def configure_models(self): ...
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for name, hook in project.hooks.items():
            method = trainer.methods.get(name)
            if method is None or not method.stub:
                continue
            if hook.needed == "optional":
                if name == "init_weights" and _has_models(trainer):
                    fact = (
                        "init_weights is still a stub: every weight keeps the garbage of memory."
                    )
                    yield Match(method.place, fact, f"Write it: {hook.purpose}; or leave it out.")
                continue
            if hook.needed == "always":
                message = f"Every run calls {hook.call}, which is still a stub."
                yield Match(method.place, message, f"Write it: {hook.purpose}.")
                continue
            for config in trainer.configs:
                need = config.hooks[name]
                if need != "unused":
                    calls = "calls" if need == "required" else "may call"
                    yield Match(
                        method.place,
                        f"{config.name} {calls} {hook.call}, which is still a stub.",
                        f"Write it: {hook.purpose}.",
                        certain=need == "required",
                        config=config.name,
                        notes=config.reasons[name],
                    )


def _has_models(trainer: Trainer) -> bool:
    return any(model.certain for model in trainer.behaviour.models.values())
