"""What runs in a training process: one process a slot, started fresh by the node agent.

The process imports torch, prints `ready`, and waits for one line on its standard input: its assignment. It
opens a session with the trainer, joins the generations that the trainer forms, and trains. When a
generation breaks the process stays and joins the next one with the state it has.
"""
