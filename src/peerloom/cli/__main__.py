"""`python -m peerloom.cli` is the command `peerloom`."""

from peerloom.cli.main import main

main()
