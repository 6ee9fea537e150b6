"""The text of a new callback and of its test."""

import re
from collections.abc import Mapping
from textwrap import indent, wrap

from ...check.fix.imports import Import
from .events import OUTSIDE_A_RUN, Event

MODULE = '''"""`{cls}`: behaviour that cuts across trainers."""

{imports}


class {cls}(Callback):
    """{why}"""

    def __init__(self) -> None:
        self.calls = 0
        """How often one of its events came, over the whole training."""

{events}

    def state_dict(self) -> dict[str, Any]:
        return {{"calls": self.calls}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]
'''

WIDTH = 88
"""Of a line of the docstring, for a project whose lines may have 99 characters."""

WHY = "Counts its events: write down what a run lacks without it, and do that instead."

RUN = '''"""`{cls}` takes part in a run, and its state outlives it."""

from dataclasses import replace
from pathlib import Path

from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
{imports}


def test_it_takes_part_and_its_state_is_kept(tmp_path: Path) -> None:
    callback = {cls}()
    config = replace(
        {config},
        experiment="short",
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(max_steps=2, val_steps_per_epoch=1),
        logging_parameters=LoggingParameters(root_dir=str(tmp_path)),
        checkpoint_parameters=None,
        extra_callbacks=[callback],
    )
    {act}
    assert callback.calls > 0

    resumed = {cls}()
    resumed.load_state_dict(callback.state_dict())
    assert resumed.calls == callback.calls
'''

ALONE = '''"""The state of `{cls}` outlives a run."""

{imports}


def test_its_state_is_kept() -> None:
    callback, resumed = {cls}(), {cls}()
    callback.calls = 3
    resumed.load_state_dict(callback.state_dict())
    assert resumed.calls == 3
'''


def module_text(
    cls: str, events: list[Event], why: str | None, offered: Mapping[str, Import]
) -> str:
    """A callback that counts its events."""
    bodies = "\n\n".join(indent(_method(event), "    ") for event in events)
    names = set(re.findall(r"\w+", bodies)) | {"Any"}
    needed = [found for name, found in offered.items() if name in names]
    if any(event.is_context for event in events):
        needed.append(Import("contextlib", "nullcontext"))
    needed.append(Import("dream_trainer.callbacks", "Callback"))
    return MODULE.format(
        cls=cls, imports=_lines(needed), why=_docstring(why or WHY), events=bodies
    )


def _docstring(text: str) -> str:
    """A text as it may stand between triple quotes, in lines that are short enough."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    lines = wrap(plain, WIDTH, break_long_words=False)
    if len(lines) > 1:
        return "\n    ".join([*lines, ""])
    # A quote before the closing ones would end the text too early.
    return f"{plain} " if plain.endswith('"') else plain


def text_of_test(
    cls: str,
    stem: str,
    events: list[Event],
    maker: tuple[str, str] | None,
    trainer: tuple[str, str],
) -> str:
    """A short run with the callback; without a configuration to make one, its state alone."""
    own = Import(stem, cls)
    if maker is None:
        return ALONE.format(cls=cls, imports=_lines([own]))
    module, config = maker
    needed = [own, Import(module, config.removesuffix("()"))]
    ran = [event for event in events if event.name not in OUTSIDE_A_RUN]
    if ran:
        act = f"{trainer[1]}(config).fit()"
    elif events[0].arguments == ("config",):
        act = f"callback.{events[0].name}(config)"
    else:
        act = f"callback.{events[0].name}({trainer[1]}(config))"
    if trainer[1] in act:
        needed.append(Import(*trainer))
    return RUN.format(cls=cls, imports=_lines(needed), config=config, act=act)


def _method(event: Event) -> str:
    result = "\n    return nullcontext()" if event.is_context else ""
    return f"{event.signature}\n    self.calls += 1{result}"


def _lines(imports: list[Import]) -> str:
    return "\n".join(
        f"from {found.module} import {found.part}" if found.name else f"import {found.part}"
        for found in imports
    )
