"""The tuned model as a folder that transformers loads, its updates merged into the weights.

python train.py export --checkpoint-path runs/RUN --output-path tuned.pt
python merge.py tuned.pt folder
"""

import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from config import Config, single_config
from model import LoRALinear, build, model_folder


@torch.no_grad()
def merge(config: Config, weights: str, folder: str) -> None:
    """Write `folder`. `weights` is a file that `train.py export` has written."""
    source = model_folder(config.model)
    tuned = build(config)
    state = torch.load(weights, weights_only=True)
    tuned.load_state_dict(state)
    for module in tuned.modules():
        if isinstance(module, LoRALinear):
            module.weight.copy_(module.merged())

    plain = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source))
    plain.load_state_dict({k: v for k, v in tuned.state_dict().items() if ".lora_" not in k})
    plain.save_pretrained(folder)
    if any(source.glob("tokenizer*")):
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)


if __name__ == "__main__":
    merge(single_config(), *sys.argv[1:])
