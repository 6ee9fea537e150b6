"""What a hook does is followed: through helpers, mixins, properties, constructors, callbacks."""

from collections.abc import Callable, Iterator
from textwrap import dedent

import pytest

from dream_scaffold.check import Result
from dream_scaffold.check.facts import (
    Attribute,
    Behaviour,
    Call,
    Code,
    Constant,
    Derived,
    Display,
    Either,
    Foreign,
    Item,
    Path,
    Term,
    Unsure,
)

Check = Callable[..., Result]


def show(term: Term | None) -> str:
    """A term as one line, near to the source that it comes from."""
    if isinstance(term, Path):
        return term.dotted
    if isinstance(term, Constant):
        return repr(term.value)
    if isinstance(term, (Foreign, Code)):
        return term.name.removeprefix("builtins.")
    if isinstance(term, Attribute):
        return f"{show(term.of)}.{term.name}"
    if isinstance(term, Item):
        return f"{show(term.of)}[{show(term.key) if term.key is not None else ''}]"
    if isinstance(term, Either):
        return f"({' | '.join(map(show, term.choices))})"
    if isinstance(term, Display):
        return f"{term.kind}({', '.join(map(show, term.items))}{'...' * term.is_open})"
    if isinstance(term, Derived):
        return f"{term.operator}({', '.join(map(show, term.of))})"
    if isinstance(term, Call):
        named = [f"{name}={show(value)}" for name, value in term.keywords.items()]
        return f"{show(term.function)}({', '.join([*map(show, term.arguments), *named])})"
    return "?" if isinstance(term, Unsure) else type(term).__name__


def behaviour(result: Result) -> Behaviour:
    return result.project.trainers[0].behaviour


def calls(result: Result, hook: str, *names: str) -> list[str]:
    return [show(call) for _, call in behaviour(result).traces[hook].calls(*names)]


def guards(result: Result, hook: str, name: str) -> list[str]:
    """What has to be so for a call of `name` to happen."""
    for act, _ in behaviour(result).traces[hook].calls(name):
        return [f"{guard.kind} {show(guard.test)}" for guard in act.guards]
    raise LookupError(name)


SHARDS = {
    "a method": """
        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                self.shard(self.model, config)

            def shard(self, root, options):
                for block in root.layers:
                    fully_shard(block, **options)
                fully_shard(root, **options)
    """,
    "a function of another module": """
        from parallel.shards import shard_all

        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                shard_all(self.model, **config)
        --- parallel/shards.py
        from torch.distributed.fsdp import fully_shard as shard

        def shard_all(net, **options):
            for _, block in enumerate(net.layers):
                shard(block, **options)
            shard(net, **options)
    """,
    "a mixin": """
        class Sharded:
            def apply_fully_shard(self, config):
                for block in reversed(self.root.layers):
                    fully_shard(block, **config)
                fully_shard(self.root, **config)

        class MyTrainer(Sharded, Complete):
            @property
            def root(self):
                return self.model
    """,
    "super": """
        class Middle(Complete):
            def apply_fully_shard(self, config):
                fully_shard(self.model, **config)

        class MyTrainer(Middle):
            def apply_fully_shard(self, config):
                for block in self.model.layers:
                    fully_shard(block, **config)
                super().apply_fully_shard(config)
    """,
    "a nested function, a lambda and a default": """
        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                def blocks(model=self.model):
                    return list(model.layers)

                shard = lambda module: fully_shard(module, **config)
                for block in blocks():
                    shard(block)
                shard(self.model)
    """,
    "functools.partial and a dict of options": """
        import functools

        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                shard = functools.partial(fully_shard, **config)
                model = self.model
                for block in model.layers:
                    shard(block)
                shard(model)
    """,
    "an import inside": """
        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                from torch.distributed.fsdp import fully_shard as fs

                [fs(block, **config) for block in self.model.layers]
                fs(self.model, **config)
    """,
    "getattr and a generator": """
        class MyTrainer(Complete):
            def apply_fully_shard(self, config):
                for module in self.in_order(getattr(self, "model")):
                    fully_shard(module, **config)

            def in_order(self, root):
                for block in root.layers:
                    yield block
                yield root
    """,
    "an attribute that is the function": """
        def shard_model(self, config):
            for block in self.model.layers:
                fully_shard(block, **config)
            fully_shard(self.model, **config)

        class MyTrainer(Complete):
            apply_fully_shard = shard_model
    """,
}


@pytest.mark.parametrize("name", SHARDS)
def test_sharding_is_found_wherever_it_is_written(project: Check, name: str) -> None:
    source = "from torch.distributed.fsdp import fully_shard\n" + dedent(SHARDS[name])
    found = list(_targets(behaviour(project(source)), "apply_fully_shard", "fully_shard"))
    assert found == ["self.model.layers.*", "self.model"]


def _targets(found: Behaviour, hook: str, verb: str) -> Iterator[str]:
    """What a verb is applied to, in order; every call of it is given the config."""
    for _, call in found.traces[hook].calls(verb):
        assert any(value.reads("config") for value in call.keywords.values())
        target = call.arguments[0]
        yield from map(show, target.options())


def test_rank_and_size_are_followed_to_the_sampler(project: Check) -> None:
    result = project("""
        from torch.utils.data import DataLoader, DistributedSampler

        class MyTrainer(Complete):
            def configure_dataloaders(self):
                self.rank, ranks = self.world.dp_rank, self.world.dp_size
                options = {"rank": self.rank, "num_replicas": ranks}
                return self.loader(options), None

            def loader(self, options):
                return DataLoader(self.data, sampler=DistributedSampler(self.data, **options))
    """)
    assert calls(result, "configure_dataloaders", "DistributedSampler") == [
        "torch.utils.data.DistributedSampler"
        "(self.data, rank=self.world.dp_rank, num_replicas=self.world.dp_size)"
    ]
    (returned,) = behaviour(result).traces["configure_dataloaders"].returns
    assert returned.term.reads("self.world.dp_rank")
    assert not returned.term.reads("self.world.rank")


def test_guards_say_when_something_happens(project: Check) -> None:
    result = project("""
        import torch
        import torch.distributed as dist
        from somewhere import fifth, first, fourth, second, third

        class MyTrainer(Complete):
            def training_step(self, batch, batch_idx):
                if self.world.rank != 0:
                    return {}
                first()
                with torch.no_grad():
                    for item in batch["parts"]:
                        try:
                            second(item)
                        except ValueError:
                            third()
                if dist.get_rank():
                    fourth()
                else:
                    fifth()
    """)
    after = "after NotEq(self.world.rank, 0)"
    hook = "training_step"
    assert guards(result, hook, "first") == [after]
    inside = [after, "with torch.no_grad()", "loop batch.parts"]
    assert guards(result, hook, "second") == [*inside, "try tuple(ValueError)"]
    assert guards(result, hook, "third") == [*inside, "except ValueError"]
    assert guards(result, hook, "fourth") == [after, "if torch.distributed.get_rank()"]
    assert guards(result, hook, "fifth") == [after, "else torch.distributed.get_rank()"]


def test_branches_are_joined(project: Check) -> None:
    result = project("""
        class MyTrainer(Complete):
            def training_step(self, batch, batch_idx):
                if batch_idx % 2:
                    net = self.one
                else:
                    net = self.two
                return {"loss": net(batch)}
    """)
    assert calls(result, "training_step", "backward") == []
    (returned,) = behaviour(result).traces["training_step"].returns
    assert show(returned.term) == "dict((self.one | self.two)(batch))"
    assert returned.term.reads("self.one") and returned.term.reads("self.two")


def test_modules_are_known_below_the_model(project: Check) -> None:
    result = project("""
        from torch import nn
        from model import Net

        class MyTrainer(Complete):
            def configure_models(self):
                self.model = Net(self.config.dim).to("cpu")
                self.heads = nn.ModuleDict({"a": nn.Linear(1, 2), "b": nn.Linear(1, 3)})

            def init_weights(self):
                for module in self.model.modules():
                    if hasattr(module, "reset_parameters"):
                        module.reset_parameters()
        --- model.py
        import torch
        from torch import nn

        class Block(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.up = nn.Linear(dim, 4 * dim)
                self.stack = nn.Sequential(Table(dim), nn.GELU())

        class Table(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.register_buffer("table", torch.empty(dim), persistent=False)

            def reset_parameters(self):
                self.table.fill_(1.0)

        class Net(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.layers = nn.ModuleList([Block(dim) for _ in range(4)])
    """)
    found = behaviour(result)
    kinds = {path: kind.name for path, kind in found.kinds.items()}
    assert kinds["self.model"] == "Net"
    assert kinds["self.model.layers.*"] == "Block"
    assert kinds["self.model.layers.*.stack.0"] == "Table"
    up = found.attributes["self.model.layers.*.up"]
    assert show(up) == "torch.nn.Linear(self.config.dim, Mult(4, self.config.dim))"
    assert show(found.attributes["self.heads.b"]) == "torch.nn.Linear(1, 3)"
    buffer = "self.model.layers.*.stack.0"
    registered = calls(result, "configure_models", "register_buffer")
    assert registered == [
        f"{buffer}.register_buffer('table', torch.empty(self.config.dim), persistent=False)"
    ]
    assert calls(result, "init_weights", "fill_") == [f"{buffer}.table.fill_(1.0)"]
    models = found.models
    assert {name: model.certain for name, model in models.items()} == {
        "model": True,
        "heads": True,
    }


def test_what_the_project_does_not_show_may_do_anything(project: Check) -> None:
    result = project("""
        from somewhere import helper

        class MyTrainer(Complete):
            def apply_compile(self):
                helper(self)

            def apply_fully_shard(self, config):
                helper(self.model, config)

            def init_weights(self):
                print(self.model)
                self.model.reset()
    """)
    traces = behaviour(result).traces
    assert traces["apply_compile"].is_open
    assert not traces["apply_fully_shard"].is_open
    assert traces["apply_fully_shard"].hands_over("self.model") is not None
    assert traces["init_weights"].hands_over("self.model") is None


def test_recursion_and_size_are_bounded(project: Check) -> None:
    doubled = "\n".join(
        f"        def f{n}(self, x):\n            self.f{n + 1}(x)\n            self.f{n + 1}(x)\n"
        for n in range(40)
    )
    result = project(
        "class MyTrainer(Complete):\n"
        "        def training_step(self, batch, batch_idx):\n"
        "            self.f0(batch)\n"
        "            self.again(batch)\n"
        "        def again(self, x):\n"
        "            return self.again(x)\n"
        "        def f40(self, x):\n"
        "            return x\n" + doubled
    )
    assert behaviour(result).traces["training_step"].is_cut


def test_callbacks_of_foreign_code_are_followed(project: Check) -> None:
    result = project("""
        from torch import nn

        def fill(module):
            nn.init.zeros_(module.weight)

        class MyTrainer(Complete):
            def init_weights(self):
                self.model.apply(fill)
    """)
    assert calls(result, "init_weights", "zeros_") == [
        "torch.nn.init.zeros_(self.model.**.weight)"
    ]
    assert guards(result, "init_weights", "zeros_")[0].startswith("callback ")


def test_places_of_helpers_lead_back_to_the_hook(project: Check) -> None:
    result = project(
        """
        from dream_trainer import DreamTrainer

        class MyTrainer(DreamTrainer):
            def training_step(self, batch, batch_idx):
                return self.learn(batch)

            def learn(self, batch):
                self.look(batch)
        """,
        prelude=False,
    )
    (act,) = [act for act, call in behaviour(result).traces["training_step"].calls("look")]
    assert act.place.line == 8
    assert [note.place.line for note in act.notes] == [5]


def test_scripts_are_the_modules_of_the_run_and_no_others(project: Check) -> None:
    result = project(
        """
        import helpers

        class MyTrainer(Complete):
            pass

        if __name__ == "__main__":
            cli(MyTrainer, DreamTrainerConfig())
        --- helpers.py
        class Watcher:
            def look(self):
                return self.deep()

            def deep(self):
                return open("x")
        --- tests/test_it.py
        import dream_trainer
        dream_trainer.spawn()
        """,
        paths=(".",),
    )
    scripts = {script.path: script for script in result.project.scripts}
    assert set(scripts) == {"train.py", "helpers.py"}
    (kind,) = scripts["helpers.py"].kinds
    assert [show(call) for _, call in kind.traces["look"].calls()] == ["open('x')"]
