"""Which names `dream new` takes; the others are refused with the reason, word for word."""

import pytest

from dream_scaffold.errors import DreamError
from dream_scaffold.project.names import check_name

GOOD = ["my-lm", "mylm", "a", "Lm2", "my_lm", "x" * 64, "classy", "torchy", "json-lm", "comet"]

BAD = {
    "": ("it is empty", "my-project"),
    "my lm": ("it contains ' ', and only letters, digits, - and _ can stand in it", "my-lm"),
    "my.lm": ("it contains '.', and only letters, digits, - and _ can stand in it", "my-lm"),
    "größe": ("it contains 'ö', and only letters, digits, - and _ can stand in it", "gr-e"),
    "..": ("it contains '.', and only letters, digits, - and _ can stand in it", "my-project"),
    "3d": ("it begins with '3', and packages begin with a letter", "my-3d"),
    "-x": ("it begins with '-', and packages begin with a letter", "x"),
    "_x": ("it begins with '_', and packages begin with a letter", "x"),
    "lm-": ("it ends with '-', and packages end with a letter or a digit", "lm"),
    "x" * 65: ("it has 65 characters, and 64 are the most", "x" * 64),
    "class": ("it is a keyword of Python", "my-class"),
    "None": ("it is a keyword of Python", "my-None"),
    "true": ("it is a keyword of Python", "my-true"),
    "con": ("Windows reserves it for a device", "my-con"),
    "COM1": ("Windows reserves it for a device", "my-COM1"),
    "torch": ("it is the name of a package that projects install", "my-torch"),
    "dream-trainer": ("it is the name of a package that projects install", "my-dream-trainer"),
    "Rich": ("it is the name of a package that projects install", "my-Rich"),
    "config": ("a part of every project has this name", "my-config"),
    "tests": ("a part of every project has this name", "my-tests"),
    "json": ("it is the name of a module of Python's standard library", "my-json"),
    "queue": ("it is the name of a module of Python's standard library", "my-queue"),
    "AST": ("it is the name of a module of Python's standard library", "my-AST"),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_names_pass(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_with_the_reason(name: str) -> None:
    reason, better = BAD[name]
    with pytest.raises(DreamError) as caught:
        check_name(name)
    assert caught.value.fact == f"{name!r} cannot name a project: {reason}."
    assert caught.value.remedy == f"Choose another one, such as {better}."
    check_name(better)
