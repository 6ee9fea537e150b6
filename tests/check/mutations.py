"""Ways to break a correct project: one edit each, with the code and the line of its finding.

A text ends at `#!` where the finding is expected; without one, `at` names a text of that line.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Expected(NamedTuple):
    """Where a break is reported."""

    code: str
    path: str
    line: int


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new` in `file`, wherever a project has it."""

    code: str
    name: str
    old: str
    new: str
    file: str = "train.py"
    at: tuple[str, str] | None = None
    """File and text of the line of the finding, where `new` does not mark it."""

    needs: str = ""
    """A part of the project's name without which the edit breaks nothing."""

    spares: str = ""
    """A part of the project's name with which it breaks nothing."""

    imports: str = ""

    def apply(self, project: str, files: dict[str, str]) -> tuple[dict[str, str], Expected] | None:
        """The broken project and where that is found; None where it cannot be broken so."""
        text = files.get(self.file, "")
        wanted = self.needs in project and not (self.spares and self.spares in project)
        if self.old not in text or not wanted:
            return None
        text = text.replace(self.old, self.new, 1)
        if self.imports:
            text = text.replace("\nimport torch\n", f"\n{self.imports}\nimport torch\n", 1)
        broken = {**files, self.file: text}
        path, mark = self.at or (self.file, "#!")
        lines = broken[path].split("\n")
        line = next((number for number, text in enumerate(lines, 1) if mark in text), 0)
        if not line:
            return None
        broken[path] = broken[path].replace("  #!", "").replace("#!", "")
        return broken, Expected(self.code, path, line)


CONFIGURATIONS = [
    Mutation("DT000", "a bracket is missing", "Trainer(config).fit()", "Trainer(config.fit()  #!"),
    Mutation(
        "DT101",
        "two axes are auto",
        "DeviceParameters.FSDP(",
        'DeviceParameters.FSDP(context_parallel="auto",  #!',
        "config.py",
        at=("config.py", "DeviceParameters.FSDP("),
        spares="cp",
    ),
    Mutation(
        "DT103",
        "async tp without compilation",
        "tensor_parallel=2,",
        "tensor_parallel=2, async_tensor_parallel=True,",
        "config.py",
        at=("config.py", "device_parameters=DeviceParameters"),
        spares="compile",
    ),
    Mutation(
        "DT104", "a degree of zero", "tensor_parallel=2,", "tensor_parallel=0,  #!", "config.py"
    ),
    Mutation(
        "DT104",
        "a degree that is a truth value",
        "pipeline_parallel=2,",
        "pipeline_parallel=True,  #!",
        "config.py",
    ),
    Mutation(
        "DT105",
        "forced both ways",
        "DeviceParameters.FSDP(",
        "DeviceParameters.FSDP(force_ddp=True, force_fsdp=True,",
        "config.py",
        at=("config.py", "DeviceParameters.FSDP("),
    ),
    Mutation(
        "DT107",
        "a misspelt keyword",
        "compile_model=False",
        "compile_models=False  #!\n",
        "config.py",
    ),
    Mutation(
        "DT107",
        "a field that the config lacks",
        "    return Config(\n",
        "    return Config(\n        learning_rates=0.1,  #!\n",
        "config.py",
    ),
    Mutation(
        "DT108",
        "a cadence of zero",
        "checkpoint_every_n_steps=50",
        "checkpoint_every_n_steps=0",
        "config.py",
        at=("config.py", "checkpoint_every_n_steps=0"),
    ),
    Mutation(
        "DT108",
        "nothing is kept",
        'monitor="val/loss"',
        'keep_top_k=0, monitor="val/loss"',
        "config.py",
        at=("config.py", "keep_top_k=0"),
    ),
    Mutation(
        "DT109",
        "a metric that nobody reports",
        'monitor="val/loss"',
        'monitor="val/losses"',
        "config.py",
        at=("config.py", 'monitor="val/losses"'),
    ),
    Mutation(
        "DT110",
        "loss_parallel without tensor parallelism",
        "DeviceParameters.SINGLE_DEVICE(",
        "DeviceParameters.SINGLE_DEVICE(loss_parallel=True,  #!\n",
        "config.py",
    ),
    Mutation(
        "DT110",
        "offload without sharding",
        "DeviceParameters.SINGLE_DEVICE(",
        "DeviceParameters.SINGLE_DEVICE(cpu_offload=True,  #!\n",
        "config.py",
    ),
    Mutation(
        "DT111",
        "a tensor made at import",
        "\nclass Trainer(DreamTrainer):",
        "\nWEIGHTS = torch.ones(1000, 1000)  #!\n\n\nclass Trainer(DreamTrainer):",
    ),
    Mutation(
        "DT112",
        "a required field is not given",
        "    learning_rate: float = ",
        "    temperature: float\n    learning_rate: float = ",
        "config.py",
        at=("config.py", "return Config("),
    ),
    Mutation("DT113", "no end", "max_steps=200", 'n_epochs=float("inf")  #!\n', "config.py"),
    Mutation(
        "DT114",
        "a precision that does not exist",
        'param_dtype="float32"',
        'param_dtype="float17"  #!\n',
        "config.py",
    ),
]

HOOKS = [
    Mutation(
        "DT201",
        "apply_compile is gone",
        "def apply_compile(self)",
        "def compile_blocks(self)",
        at=("train.py", "class Trainer("),
        needs="compile",
    ),
    Mutation(
        "DT201",
        "apply_replicate is gone",
        "def apply_replicate(self",
        "def copies(self",
        at=("train.py", "class Trainer("),
    ),
    Mutation(
        "DT202",
        "apply_fully_shard is a stub",
        "    def init_weights(self) -> None:\n",
        "    def apply_fully_shard(self, config: dict[str, Any]) -> None: ...  #!\n\n"
        "    def init_weights(self) -> None:\n",
        needs="fsdp",
    ),
    Mutation(
        "DT202",
        "training_step is not written",
        "    def count_items",
        "    def training_step(self, batch, batch_idx):  #!\n"
        "        raise NotImplementedError\n\n    def count_items",
    ),
    Mutation(
        "DT204",
        "validation_step takes no index",
        "def validation_step(self, batch: dict[str, Tensor], batch_idx: int)",
        "def validation_step(self, batch: dict[str, Tensor])",
        at=("train.py", "def validation_step("),
    ),
    Mutation(
        "DT204",
        "apply_fully_shard takes nothing",
        "def apply_fully_shard(self, config: dict[str, Any])",
        "def apply_fully_shard(self)",
        at=("train.py", "def apply_fully_shard("),
    ),
    Mutation(
        "DT205",
        "a misspelt hook",
        "def validation_step(",
        "def validaton_step(",
        at=("train.py", "def validaton_step("),
    ),
    Mutation(
        "DT206",
        "configure_optimizers is gone",
        "def configure_optimizers(self)",
        "def optimizers_of(self)",
        at=("train.py", "class Trainer("),
    ),
    Mutation(
        "DT207",
        "the sharding hook only prints",
        "        for layer in self.model.layers:\n            fully_shard(layer, **config)\n"
        "        fully_shard(self.model, **config)\n",
        "        print('sharding', config)\n",
        at=("train.py", "def apply_fully_shard("),
    ),
    Mutation(
        "DT207",
        "the replication hook only prints",
        "        replicate(self.model, device_mesh=dp_replicate_mesh)\n",
        "        print(dp_replicate_mesh)\n",
        at=("train.py", "def apply_replicate("),
    ),
    Mutation(
        "DT208",
        "the root is not sharded",
        "        fully_shard(self.model, **config)\n",
        "",
        at=("train.py", "def apply_fully_shard("),
    ),
    Mutation(
        "DT208",
        "the root is sharded first",
        "        for layer in self.model.layers:\n            fully_shard(layer, **config)\n"
        "        fully_shard(self.model, **config)\n",
        "        fully_shard(self.model, **config)  #!\n        for layer in self.model.layers:\n"
        "            fully_shard(layer, **config)\n",
    ),
    Mutation(
        "DT209",
        "the root is sharded over no mesh",
        "        fully_shard(self.model, **config)\n",
        "        fully_shard(self.model)  #!\n",
    ),
    Mutation(
        "DT209",
        "blocks are sharded over the whole mesh",
        "            fully_shard(layer, **config)\n",
        "            fully_shard(layer, mesh=self.world.mesh)  #!\n",
    ),
    Mutation(
        "DT209",
        "replicated over no mesh",
        "replicate(self.model, device_mesh=dp_replicate_mesh)",
        "replicate(self.model)  #!\n",
    ),
    Mutation(
        "DT210",
        "a second trained model is left out",
        "        for model in (self.generator, self.critic):\n            for layer",
        "        for model in (self.generator,):\n            for layer",
        at=("train.py", "def apply_fully_shard("),
        needs="gan-fsdp",
        spares="ckpt",
    ),
    Mutation(
        "DT211",
        "a plan for a module that does not exist",
        '"attention.query": ColwiseParallel()',
        '"attention.wq": ColwiseParallel()',
        at=("train.py", '"attention.wq"'),
    ),
    Mutation(
        "DT212",
        "compilation that renames the weights",
        "        for layer in self.model.layers:\n            layer.compile()\n",
        "        self.model = torch.compile(self.model)  #!\n",
    ),
    Mutation(
        "DT214",
        "compiled in the hook that shards",
        "        fully_shard(self.model, **config)\n",
        "        self.model.head.compile()  #!\n        fully_shard(self.model, **config)\n",
    ),
    Mutation(
        "DT214",
        "sharded in the hook that compiles",
        "            layer.compile()\n",
        "            layer.compile()\n            fully_shard(layer)  #!\n",
        needs="fsdp",
    ),
]

LIFECYCLE = [
    Mutation(
        "DT301",
        "weights drawn on the meta device",
        "        self.model = Model(self.config)\n",
        "        self.model = Model(self.config)\n"
        "        nn.init.normal_(self.model.head.weight)  #!\n",
    ),
    Mutation(
        "DT301",
        "weights loaded on the meta device",
        "        self.model = Model(self.config)\n",
        "        self.model = Model(self.config)\n"
        '        self.model.load_state_dict(torch.load("model.pt"))  #!\n',
    ),
    Mutation(
        "DT302",
        "an optimizer over meta tensors",
        "        self.model = Model(self.config)\n",
        "        self.model = Model(self.config)\n"
        "        self.early = torch.optim.SGD(self.model.parameters(), lr=0.1)  #!\n",
    ),
    Mutation(
        "DT303",
        "moved by hand",
        "        self.model = Model(self.config)\n",
        '        self.model = Model(self.config).to("cuda")  #!\n',
    ),
    Mutation(
        "DT304",
        "sharded where the model is built",
        "        self.model = Model(self.config)\n",
        "        self.model = Model(self.config)\n        fully_shard(self.model)  #!\n",
        needs="fsdp",
    ),
    Mutation(
        "DT305",
        "a module made after materialisation",
        "        self.optimizer = torch.optim.AdamW(",
        "        self.model.probe = nn.Linear(4, 4)  #!\n"
        "        self.optimizer = torch.optim.AdamW(",
    ),
    Mutation(
        "DT306",
        "a table that is never refilled",
        "        self.cos.copy_(angle.cos())\n        self.sin.copy_(angle.sin())\n",
        "        del angle\n",
        "model.py",
        at=("model.py", "self.register_buffer("),
    ),
    Mutation(
        "DT307",
        "weights of 16 bits",
        "        self.model = Model(self.config)\n",
        "        self.model = Model(self.config).to(torch.bfloat16)  #!\n",
    ),
    Mutation(
        "DT308",
        "a seed for every rank",
        "    def init_weights(self) -> None:\n",
        "    def init_weights(self) -> None:\n"
        "        torch.manual_seed(self.config.seed + self.world.rank)  #!\n",
    ),
]

DATA = [
    Mutation(
        "DT401",
        "no rank reaches the sampler",
        "                examples, num_replicas=self.world.dp_size, rank=self.world.dp_rank\n",
        "                examples\n",
        at=("train.py", "sampler=DistributedSampler("),
        needs="ddp",
    ),
    Mutation(
        "DT401",
        "no rank reaches the batches",
        "rank, ranks = self.world.dp_rank, self.world.dp_size",
        "rank, ranks = 0, 1",
        at=("train.py", "TextBatches(train"),
        needs="fsdp",
    ),
    Mutation(
        "DT402",
        "split by the global rank",
        "rank=self.world.dp_rank\n",
        "rank=self.world.rank\n",
        at=("train.py", "rank=self.world.rank"),
        needs="dp",
    ),
    Mutation(
        "DT403",
        "shuffled beside a sampler",
        "            examples,\n            batch_size",
        "            examples,\n            shuffle=True,  #!\n            batch_size",
    ),
    Mutation(
        "DT406",
        "one loader for both",
        "        return train, self.loader(size=self.config.num_samples // 16, seed=2)\n",
        "        return train, train  #!\n",
    ),
]

STEPS = [
    Mutation("DT501", "backward by hand", "self.backward(loss)", "loss.backward()  #!\n       "),
    Mutation(
        "DT502",
        "the optimizer stepped by hand",
        "        self.backward(loss)  #",
        "        self.optimizer.step()  #!\n        self.backward(loss)  #",
    ),
    Mutation(
        "DT502",
        "gradients cleared by hand",
        "        self.backward(loss)  #",
        "        self.optimizer.zero_grad()  #!\n        self.backward(loss)  #",
    ),
    Mutation(
        "DT502",
        "clipped by hand",
        "        self.backward(loss)  #",
        "        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  #!\n"
        "        self.backward(loss)  #",
    ),
    Mutation(
        "DT503",
        "accumulation counted by hand",
        '"train/grad_norm": self.step(self.optimizer)',
        '"train/grad_norm": self.step(self.optimizer) if (batch_idx + 1) % 4 == 0 else None',
        at=("train.py", "(batch_idx + 1) % 4"),
    ),
    Mutation(
        "DT504",
        "the host waits for the loss",
        '"train/loss": loss',
        '"train/loss": loss.item()',
        at=("train.py", "loss.item()"),
    ),
    Mutation(
        "DT504",
        "the loss is printed",
        "        self.backward(loss)  #",
        '        print(f"{loss}")  #!\n        self.backward(loss)  #',
    ),
    Mutation(
        "DT505",
        "a step that returns its loss",
        '        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}\n',
        "        self.step(self.optimizer)\n        return loss  #!\n",
    ),
    Mutation(
        "DT506",
        "an optimizer that never steps",
        "self.step(self.optimizer)",
        "None",
        at=("train.py", "self.optimizer = torch.optim.AdamW("),
    ),
    Mutation(
        "DT507",
        "training in the validation",
        "        hits = logits",
        "        self.backward(logits.sum())  #!\n        hits = logits",
    ),
    Mutation(
        "DT508",
        "the wrapper is gone round",
        'self.model(batch["input"]).float(), batch["target"]',
        'self.model.forward(batch["input"]).float(), batch["target"]',
        at=("train.py", "self.model.forward("),
        needs="ddp",
    ),
    Mutation(
        "DT509",
        "graphs are kept",
        "        self.backward(loss)  #",
        "        self.total += loss  #!\n        self.backward(loss)  #",
    ),
    Mutation(
        "DT510",
        "gradient synchronization off by hand",
        "        self.backward(loss)  #",
        "        self.model.set_requires_gradient_sync(False)  #!\n        self.backward(loss)  #",
        needs="fsdp",
    ),
]

STATE = [
    Mutation(
        "DT601",
        "a plain state dict",
        '{"model": get_model_state_dict(self.model)}',
        '{"model": self.model.state_dict()}',
        at=("train.py", "self.model.state_dict()"),
    ),
    Mutation(
        "DT602",
        "the model is not saved",
        '{"model": get_model_state_dict(self.model)}',
        "{}",
        at=("train.py", "        return {}"),
    ),
    Mutation(
        "DT603",
        "the optimizer alone is returned",
        "        return {self.model: self.optimizer}\n",
        "        return self.optimizer  #!\n",
    ),
    Mutation(
        "DT604",
        "a collective on one rank",
        "        self.backward(loss)  #",
        "        if self.world.rank == 0:\n"
        "            torch.distributed.barrier()  #!\n        self.backward(loss)  #",
    ),
    Mutation(
        "DT604",
        "a collective after the others have left",
        "    def model_state_dict(self, **_: Any) -> dict[str, Any]:\n",
        "    def model_state_dict(self, **_: Any) -> dict[str, Any]:\n"
        "        if torch.distributed.get_rank() != 0:\n            return {}\n",
        at=("train.py", 'return {"model": get_model_state_dict'),
    ),
    Mutation(
        "DT605",
        "saved by hand",
        "        self.backward(loss)  #",
        '        torch.save(self.model.state_dict(), "m.pt")  #!\n        self.backward(loss)  #',
    ),
]

LAUNCH = [
    Mutation(
        "DT701",
        "a process group by hand",
        "    Trainer(config).fit()\n",
        '    torch.distributed.init_process_group("gloo")  #!\n    Trainer(config).fit()\n',
    ),
    Mutation(
        "DT702",
        "launched on import",
        'if __name__ == "__main__":\n    cli(main',
        "cli(main",
        at=("train.py", "cli(main"),
    ),
    Mutation(
        "DT703",
        "a tracker on every rank",
        "    Trainer(config).fit()\n",
        '    wandb.init(project="mine")  #!\n    Trainer(config).fit()\n',
        imports="import wandb",
    ),
    Mutation(
        "DT704",
        "a signal handler by hand",
        "    Trainer(config).fit()\n",
        "    signal.signal(signal.SIGTERM, print)  #!\n    Trainer(config).fit()\n",
        imports="import signal",
    ),
    Mutation(
        "DT705",
        "one device for all ranks",
        "    def init_weights(self) -> None:\n",
        "    def init_weights(self) -> None:\n"
        '        self.device_of = torch.device("cuda:0")  #!\n',
    ),
]

MUTATIONS = (*CONFIGURATIONS, *HOOKS, *LIFECYCLE, *DATA, *STEPS, *STATE, *LAUNCH)
