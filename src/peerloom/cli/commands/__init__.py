"""One module a command; `peerloom.cli.main` names them."""
