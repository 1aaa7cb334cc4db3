"""Follow a job's events and react: here, stop it as soon as the model is good enough.

    python examples/stop_when_good.py        beside a system: peerloom up

Events are numbered; a broken line or a restarted trainer makes no gap. A watch may be left at any time.
"""

import peerloom

GOOD_ENOUGH = 0.93

with peerloom.Client() as client:
    job, epoch = client.train("digits", requests=2, epochs=500), 0
    for event in job.watch():
        match event:
            case peerloom.GenerationFormed(workers=workers):
                print(f"{len(workers)} workers begin")
            case peerloom.WorkerLost():
                print(event)
            case peerloom.EpochFinished(epoch=epoch, metric=metric):
                print(f"epoch {epoch}: {metric:.3f}")
                if metric >= GOOD_ENOUGH:
                    job.cancel()
                    break
    print(f"{job.result().state} after epoch {epoch} of 500; job.resume() would go on")
