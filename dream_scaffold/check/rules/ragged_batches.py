"""The last training batch may be short, where every batch has to be alike.

A pipeline cuts each batch into equal parts and stops at one that it cannot cut. Compiled
code is compiled again for every new shape, which takes minutes on a large model, at the
end of every epoch until Dynamo gives up.

Bad:

    DataLoader(data, batch_size=32, sampler=sampler)            # compile_model=True

Good:

    DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)

How to fix: `drop_last=True` for the training loader.
"""

from collections.abc import Iterator

from ..facts import Call, Configuration, Edit, Fix, Match, Project, Severity, constant, loaders

CODE = "DT407"
NAME = "ragged-batches"
SEVERITY: Severity = "warning"

_HEAD = """
    from torch.utils.data import DataLoader

    class MyTrainer(Complete):
        def apply_compile(self):
            self.model.compile()

        def configure_dataloaders(self):
"""

_COMPILED = """
    config = DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())
"""

PASSES = (
    _HEAD
    + """
            return DataLoader([1, 2], batch_size=2, drop_last=True), DataLoader([3])
    """
    + _COMPILED,
    _HEAD
    + """
            return DataLoader([1, 2], batch_size=2), None

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    _HEAD
    + """
            return DataLoader([1, 2], batch_sampler=make_sampler()), None
    """
    + _COMPILED,
    _HEAD
    + """
            return DataLoader([1, 2], batch_size=2, drop_last=self.config.full), None
    """
    + _COMPILED,
)

MATCHES = (
    _HEAD
    + """
            return DataLoader([1, 2], batch_size=2), None
    """
    + _COMPILED,
    _HEAD
    + """
            loader = DataLoader([1, 2], batch_size=2, drop_last=False)
            return loader, None
    """
    + _COMPILED,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for loader in loaders(trainer):
            for call in loader.torch_loaders if loader.is_training else ():
                if not _is_ragged(call):
                    continue
                for config in trainer.configs:
                    if (why := _needs_equal(config)) is not None:
                        yield Match(
                            call.place,
                            f"The last batch of an epoch may be short, and {config.name} {why}.",
                            "Set drop_last=True.",
                            config=config.name,
                            fix=_fix(call),
                        )


def _is_ragged(call: Call) -> bool:
    if call.is_open or "batch_sampler" in call.keywords or "batch_size" not in call.keywords:
        return False
    if constant(call.keywords["batch_size"]) == 1:
        return False
    return "drop_last" not in call.keywords or constant(call.keywords["drop_last"]) is False


def _needs_equal(config: Configuration) -> str | None:
    if config.is_wide("pp"):
        return "cuts every batch into equal parts for its pipeline"
    compiled = config.features.get("compile_model") is True
    return "compiles, once more for every new shape" if compiled else None


def _fix(call: Call) -> Fix:
    spot = call.spot.keywords.get("drop_last")
    if spot is not None:
        return Fix("Drop the short batch", (Edit(spot.place, "True"),), safe=False)
    edit = Edit(call.spot.end, f"{call.spot.separator}drop_last=True")
    return Fix("Drop the short batch", (edit,), safe=False)
