"""Prompts and answers as tokens; the loss counts the answers alone."""

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import AutoTokenizer

from config import Config
from model import model_folder

IGNORED = -100
"""The target of a token that is not to be learnt; what `F.cross_entropy` ignores."""


class Bytes:
    """The tokenizer of a model that has none: a token a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Examples(Dataset[tuple[list[int], list[int]]]):
    """The tokens of a prompt and of its answer.

    Raises `OSError` for data that cannot be read, and `ValueError` for a line that lacks a
    prompt or an answer.
    """

    def __init__(self, config: Config, *, held_out: bool) -> None:
        self.tokenizer = load_tokenizer(config.model)
        pairs = read_pairs(config.data)
        Random(0).shuffle(pairs)
        count = int(len(pairs) * config.validation_share)
        self.pairs = pairs[:count] if held_out else pairs[count:]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[list[int], list[int]]:
        prompt, answer = self.pairs[index]
        return self.tokenizer.encode(prompt), self.tokenizer.encode(answer)


def collate(examples: list[tuple[list[int], list[int]]], *, seq_len: int) -> dict[str, Any]:
    """{"input_ids", "attention_mask", "labels": (batch, seq_len) of int64, "count": int}.

    Short examples are filled up on the right. A label is the token itself, or IGNORED; `count`
    is how many are not.
    """
    shape = (len(examples), seq_len)
    tokens, mask = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    labels = torch.full(shape, IGNORED)
    for row, (prompt, answer) in enumerate(examples):
        whole = torch.tensor((prompt + answer)[:seq_len])
        tokens[row, : len(whole)] = whole
        mask[row, : len(whole)] = 1
        labels[row, len(prompt) : len(whole)] = whole[len(prompt) :]
    # The first token is predicted from nothing, and does not count.
    count = int((labels[:, 1:] != IGNORED).sum())
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels, "count": count}


def load_tokenizer(model: str) -> Any:
    """The tokenizer in the folder of a model, or bytes."""
    folder = model_folder(model)
    has_one = any(folder.glob("tokenizer*"))
    return AutoTokenizer.from_pretrained(folder) if has_one else Bytes()


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Prompts and answers of a file of JSON lines; sums, where there is none."""
    if not path:
        return [(f"{a} + {b} = ", f"{a + b}\n") for a in range(50) for b in range(50)]
    pairs = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            pairs.append((str(row["prompt"]), str(row["answer"])))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is no prompt with an answer: {error}.") from error
    return pairs
