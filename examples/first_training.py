"""The shortest training: ask nodes for compute, watch the epochs, take the model away.

python examples/first_training.py        beside a system: peerloom up
"""

import peerloom

with peerloom.Client() as client:
    job = client.train("digits", requests=2, epochs=3)
    for event in job.watch():
        if isinstance(event, peerloom.NodeAnswered | peerloom.EpochFinished):
            print(event)
    result = job.result().raise_for_state()
    print(f"{result.metric_name} {result.metric:.3f}, {result.samples_per_s:,.0f} samples a second")
    print("the model is in", job.fetch_model("digits.safetensors").name)
