"""A job's events told to experiment trackers: TensorBoard, MLflow, Weights & Biases.

    destinations   which tracker, as users write it, and whether its library is there
    track_entries  events as figures and lines, the same for all trackers
    job_tracking   a watch of its own that writes until the job has ended, whatever the tracker does
    tensorboard_tracker, mlflow_tracker, wandb_tracker   one library each, imported when it is used

A tracker's run belongs to one job and holds how far it was told: who comes later goes on from there.
"""
