"""A job's model or checkpoint as the folders that other libraries load, written by torch's own writers.

`hugging_face` makes what `from_pretrained` takes (config.json beside sharded safetensors, or an adapter as
peft has it), `distributed_checkpoint` what torch.distributed.checkpoint loads, with an optimiser's state by
the names of the parameters. `stored_file` reads the files that Peerloom keeps.
"""
