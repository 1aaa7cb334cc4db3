"""A Hugging Face model as a task: a small BERT learns whether a sentence has more cheerful than gloomy words.

Model and sentences are made here, so nothing is downloaded. To fine-tune a model of yours, have `model`
return AutoModelForSequenceClassification.from_pretrained(FOLDER), and `data` two data sets whose rows a
tokenizer made; both must be the same on every node, and the nodes need transformers too:
pip install 'peerloom[train,hf]'.

    PYTHONPATH=examples peerloom up
    peerloom train hugging_face:Mood --requests 3
"""

from collections.abc import Iterable

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

from peerloom.worker.task import Task

WORDS, LENGTH = 42, 12  # word 0 fills sentences up, 1 begins them; 2 to 21 are cheerful, 22 to 41 gloomy
CHEERFUL = range(2, 22)
Row = dict[str, list[int] | int]


class Mood(Task):
    """Sentences of up to 11 words; class 1 where most are cheerful. `width` is that of the model."""

    epochs = 3
    batch_size = 32
    learning_rate = 0.002
    targets_key = "label"
    clip_norm = 1.0

    def __init__(self, width: str = "32") -> None:
        self.width = int(width)

    def model(self) -> nn.Module:
        """A BERT of one layer; it is called with the rows' other entries by name."""
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=self.width,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * self.width,
            max_position_embeddings=LENGTH,
            num_labels=2,
        )
        return BertForSequenceClassification(config)

    def data(self) -> tuple[list[Row], list[Row]]:
        """960 sentences to train on and 192 to test on, as rows that a tokenizer would make."""
        random = torch.Generator().manual_seed(7)
        rows = [sentence(random) for _ in range(1152)]
        return rows[:960], rows[960:]

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """AdamW, as transformers are trained with."""
        return torch.optim.AdamW(parameters, lr=learning_rate)

    def scheduler(
        self, optimiser: torch.optim.Optimizer, total_steps: int
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """The learning rate rises over the first tenth of the updates, and falls to 0 over the others."""
        return get_linear_schedule_with_warmup(optimiser, total_steps // 10, total_steps)


def sentence(random: torch.Generator) -> Row:
    """One row: an odd number of words, so that one kind is more, filled up with zeros."""
    count = 2 * int(torch.randint(2, 6, (), generator=random)) + 1
    words = torch.randint(2, WORDS, (count,), generator=random).tolist()
    empty = [0] * (LENGTH - 1 - count)
    return {
        "input_ids": [1, *words, *empty],
        "attention_mask": [1] * (count + 1) + empty,
        "label": int(2 * sum(word in CHEERFUL for word in words) > count),
    }
