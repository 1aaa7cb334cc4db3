"""A GPT-2 learns to write the sentences of a file, by Hugging Face's datasets and transformers.

    pip install 'peerloom[train,hf]'
    python examples/fine_tuning/gpt2_text.py
    peerloom train examples/fine_tuning/gpt2_text.py --code examples/fine_tuning
    peerloom models get gpt2-text trained --format hugging-face

The GPT-2 is a small one with random parameters, so nothing is downloaded; `from_pretrained` takes its place,
of a folder that lies in the code. What is fetched at last loads by
AutoModelForCausalLM.from_pretrained("trained").
"""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

import peerloom

FOLDER = Path(__file__).parent
LENGTH = 24  # tokens of a sample


def blocks(tokenizer: AutoTokenizer) -> Dataset:
    """The sentences one after the other, cut into samples of equal length."""
    rows = Dataset.from_json(str(FOLDER / "train.jsonl"), keep_in_memory=True)
    texts = [f"{row['text']} {tokenizer.eos_token}" for row in rows]
    tokens = [token for text in texts for token in tokenizer(text)["input_ids"]]
    cut = [tokens[begin : begin + LENGTH] for begin in range(0, len(tokens) - LENGTH + 1, LENGTH)]
    return Dataset.from_dict({"input_ids": cut})


def tiny_gpt2(tokenizer: AutoTokenizer) -> GPT2LMHeadModel:
    """What stands in for a model that has learned already; the same wherever it is made."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        initializer_range=0.2,  # an adapter alone learns little on next to nothing
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return GPT2LMHeadModel(config)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = tiny_gpt2(tokenizer)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    with peerloom.elastic(clip_norm=1.0) as run:
        model, optimiser = run.prepare(model, optimiser)
        for batch in run.batches(blocks(tokenizer), batch_size=16, epochs=epochs):
            run.step(model(**batch, labels=batch["input_ids"]).loss)
    if run.is_main:
        print(f"loss {run.epochs[0].loss:.3f} in the first epoch, {run.epochs[-1].loss:.3f} in the last")


if __name__ == "__main__":
    main()
