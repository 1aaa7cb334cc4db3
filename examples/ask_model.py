"""Ask the newest digits model for pictures as they are: the model carries its preprocessing.

    peerloom train digits
    python examples/ask_model.py

Pixels from 0 to 16 go in, names of classes come out, from whichever is fastest: a node that holds the model,
several that hold a part each, or this process.
"""

from sklearn.datasets import load_digits

import peerloom

SHADES = " .:-=+*#%@"
pictures = load_digits().images[[1, 7]]

with peerloom.Client() as client:
    answer = client.infer("digits:latest", pictures[:, None])  # a channel for each picture
    for picture, label, probabilities in zip(pictures, answer.labels, answer.probabilities, strict=True):
        for row in picture:
            print("  " + "".join(2 * SHADES[int(pixel) * 9 // 16] for pixel in row))
        print(f"looks like a {label}, with probability {probabilities.max():.2f}\n")
    print(f"answered {answer.mode}: {answer.reason}")
    try:
        client.infer("digits:latest", pictures[:, None] * 100)
    except peerloom.InvalidArgumentError as error:
        print(f"refused: {error.message}")
