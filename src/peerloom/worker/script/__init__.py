"""A job that is a script: each worker starts it as torchrun would, tells what it prints, and ends it."""
