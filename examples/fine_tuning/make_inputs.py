"""Makes what the examples beside it fine-tune on: sentences of cheerful and gloomy words, and a tokenizer.

    python examples/fine_tuning/make_inputs.py

The files lie here already, and are what this writes.
"""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).parent
CHEERFUL = ["sunny", "bright", "warm", "merry", "fine", "happy", "golden", "calm"]
GLOOMY = ["rainy", "dark", "cold", "dreary", "grim", "weary", "grey", "bitter"]
THINGS = ["morning", "evening", "river", "street", "garden", "house", "road", "village"]
BEGINNINGS = ["it was a", "we saw a", "there lay a"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def sentence(chance: random.Random) -> dict[str, str | int]:
    """One sentence with one to three words of a mood; label 1 is the cheerful one."""
    label = chance.randrange(2)
    words = chance.sample(CHEERFUL if label else GLOOMY, chance.randint(1, 3))
    return {
        "text": f"{chance.choice(BEGINNINGS)} {' and '.join(words)} {chance.choice(THINGS)}",
        "label": label,
    }


def main() -> None:
    chance = random.Random(7)
    for name, count in (("train", 256), ("test", 64)):
        lines = [json.dumps(sentence(chance)) + "\n" for _ in range(count)]
        (FOLDER / f"{name}.jsonl").write_text("".join(lines))
    words = sorted({*CHEERFUL, *GLOOMY, *THINGS, "and", *" ".join(BEGINNINGS).split()})
    tokens = {word: number for number, word in enumerate([*SPECIAL, *words])}
    made = Tokenizer(WordLevel(tokens, unk_token="[UNK]"))
    made.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", bos_token="[CLS]", eos_token="[SEP]"
    ).save_pretrained(FOLDER)


if __name__ == "__main__":
    main()
