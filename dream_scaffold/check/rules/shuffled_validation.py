"""A validation of a few batches reads them in a new order every time.

With `val_steps_per_epoch` a validation sees the first batches of its loader. Shuffled,
those are other samples after every epoch: the curve moves with the draw, and the best
checkpoint is the one that met the easiest batches.

Bad:

    TrainingParameters(val_steps_per_epoch=20)
    DataLoader(held_out, shuffle=True)

Good:

    DataLoader(held_out, shuffle=False)

How to fix: do not shuffle what is only measured.
"""

from collections.abc import Iterator

from ..facts import Call, Edit, Fix, Loader, Match, Project, Severity, constant, loaders

CODE = "DT408"
NAME = "shuffled-validation"
SEVERITY: Severity = "warning"

_HEAD = """
    from torch.utils.data import DataLoader, DistributedSampler

    class MyTrainer(Complete):
        def configure_dataloaders(self):
"""

_FEW = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False),
        training_parameters=TrainingParameters(val_steps_per_epoch=4),
    )
"""

PASSES = (
    _HEAD
    + """
            return DataLoader([1], shuffle=True), DataLoader([2])
    """
    + _FEW,
    _HEAD
    + """
            return DataLoader([1], shuffle=True), DataLoader([2], shuffle=True)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    _HEAD
    + """
            return DataLoader([1]), DataLoader([2], shuffle=self.config.mix)
    """
    + _FEW,
)

MATCHES = (
    _HEAD
    + """
            return DataLoader([1]), DataLoader([2], shuffle=True)
    """
    + _FEW,
    _HEAD
    + """
            ranks = {"num_replicas": self.world.dp_size, "rank": self.world.dp_rank}
            sampler = DistributedSampler([2], shuffle=True, **ranks)
            return DataLoader([1]), DataLoader([2], sampler=sampler)
    """
    + _FEW,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        configs = [c for c in trainer.configs if _is_short(c.value(FIELD))]
        for loader in loaders(trainer) if configs else ():
            for call in _shufflers(loader):
                spot = call.spot.keywords.get("shuffle")
                if spot is not None and constant(call.keywords["shuffle"]) is True:
                    yield Match(
                        spot.place,
                        f"{configs[0].name} validates on the first batches, and they are other "
                        "ones every time.",
                        "Do not shuffle what is only measured.",
                        config=configs[0].name,
                        fix=Fix("Keep the order", (Edit(spot.place, "False"),)),
                    )


FIELD = "training_parameters.val_steps_per_epoch"


def _is_short(steps: object) -> bool:
    return isinstance(steps, int) and steps > 0


def _shufflers(loader: Loader) -> Iterator[Call]:
    if not loader.is_training:
        yield from loader.samplers
        yield from loader.torch_loaders
