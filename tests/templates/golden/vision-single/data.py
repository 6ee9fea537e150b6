"""Handwritten digits that come with scikit-learn: 1,797 images of 8 by 8 pixels."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import Dataset

from config import Config

BRIGHTEST = 16
"""A pixel counts how many of 16 points are dark."""


class Digits(Dataset[dict[str, Tensor]]):
    """{"image": (height, width) from -1 to 1, "label": ()}, for training or held out."""

    def __init__(self, config: Config, *, held_out: bool) -> None:
        digits = load_digits()
        images = torch.from_numpy(digits.images).float() / BRIGHTEST * 2 - 1
        labels = torch.from_numpy(digits.target)
        # Writers follow each other in the file: both parts shall know all of them.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        count = int(len(images) * config.validation_share)
        chosen = order[:count] if held_out else order[count:]
        self.images, self.labels = images[chosen], labels[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"image": self.images[index], "label": self.labels[index]}
