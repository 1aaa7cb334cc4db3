"""A BERT learns from a file of labelled sentences, by Hugging Face's datasets and transformers.

    pip install 'peerloom[train,hf]'
    python examples/fine_tuning/bert_classifier.py
    peerloom train examples/fine_tuning/bert_classifier.py --code examples/fine_tuning
    peerloom models get bert-classifier trained --format hugging-face

The BERT is a small one with random parameters, so nothing is downloaded; `from_pretrained` takes its place,
of a folder that lies in the code. What is fetched at last loads by
AutoModelForSequenceClassification.from_pretrained("trained"), and its tokenizer by AutoTokenizer's.
"""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    get_linear_schedule_with_warmup,
)

import peerloom

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)

    def samples(file: str) -> Dataset:
        rows = Dataset.from_json(str(FOLDER / file), keep_in_memory=True)
        return rows.map(lambda row: tokenizer(row["text"]), remove_columns=["text"])

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        id2label={0: "gloomy", 1: "cheerful"},
        label2id={"gloomy": 0, "cheerful": 1},
    )
    model = BertForSequenceClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.005)
    padded = DataCollatorWithPadding(tokenizer)
    loader = DataLoader(samples("train.jsonl"), batch_size=32, shuffle=True, collate_fn=padded)
    schedule = get_linear_schedule_with_warmup(optimiser, 4, epochs * len(loader))

    def right(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return (model(**batch).logits.argmax(dim=1) == batch["labels"]).float()

    with peerloom.elastic(clip_norm=1.0) as run:
        model, optimiser, schedule = run.prepare(model, optimiser, schedule)
        run.evaluate(right, samples("test.jsonl"), collate=padded)
        for batch in run.batches(loader, epochs=epochs):
            run.step(model(**batch).loss)
    if run.is_main:
        print(f"accuracy {run.epochs[-1].metric:.3f} on {run.size} workers")


if __name__ == "__main__":
    main()
