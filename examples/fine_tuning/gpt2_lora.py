"""A GPT-2 learns by LoRA, with peft: its own parameters stay, and only the adapter's are sent and stored.

    pip install 'peerloom[train,hf]'
    python examples/fine_tuning/gpt2_lora.py
    peerloom train examples/fine_tuning/gpt2_lora.py --code examples/fine_tuning
    peerloom models get gpt2-lora adapter --format hugging-face

The base is a small one with random parameters (gpt2_text.py makes it); of a real one, lay the folder into
the code, or have it on each node. What is fetched at last loads by PeftModel.from_pretrained(base,
"adapter").
"""

import argparse

import torch
from gpt2_text import FOLDER, blocks, tiny_gpt2
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer

import peerloom


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    epochs = parser.parse_args().epochs

    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    lora = LoraConfig(
        r=4,
        lora_alpha=16,
        target_modules=["c_attn", "c_fc", "c_proj"],
        fan_in_fan_out=True,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(tiny_gpt2(tokenizer), lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=0.05)
    with peerloom.elastic() as run:
        model, optimiser = run.prepare(model, optimiser)
        for batch in run.batches(blocks(tokenizer), batch_size=16, epochs=epochs):
            run.step(model(**batch, labels=batch["input_ids"]).loss)
    if run.is_main:
        print(f"loss {run.epochs[0].loss:.3f} in the first epoch, {run.epochs[-1].loss:.3f} in the last")


if __name__ == "__main__":
    main()
