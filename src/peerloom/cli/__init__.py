"""The command `peerloom`: the SDK and the embedded system at a keyboard.

`main` holds the table of commands; each module in `commands` is imported only when its command is called,
so that `--help` and completion stay quick. Data go to standard output, everything else to standard error.
"""
