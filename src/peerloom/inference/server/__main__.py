"""`python -m peerloom.inference.server`: the inference server of one node."""

import sys
from pathlib import Path

import torch

from peerloom.inference.server.config import InferenceConfig
from peerloom.inference.server.serving import SERVICES, serve
from peerloom.inference.server.torch_computing import TorchComputing, TorchExecutor
from peerloom.inference.trusted_modules import BY_NODE_OWNER, TrustedModules
from peerloom.kit.clock import SystemClock
from peerloom.kit.config import load_config
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.logs import configure_logs
from peerloom.kit.server import Endpoint, Server, run
from peerloom.kit.tracing_setup import start_tracing


async def main() -> None:
    """Serves until it is asked to stop, or its agent is gone."""
    config = load_config(InferenceConfig, "inference", sys.argv[1:])
    configure_logs("inference", config.log_level)
    start_tracing("inference")
    torch.set_num_threads(config.threads)
    identity = Identity(Path(config.identity)) if config.identity else None
    clock, executor = SystemClock(), TorchExecutor()
    modules = TrustedModules(config.modules, BY_NODE_OWNER)
    computing = TorchComputing(torch.device(config.accelerator), modules, executor, clock)
    server = Server(Endpoint(config.listen, identity, config.allow_plain), SERVICES)
    await serve(config, server, Dialer(identity), clock, computing)
    executor.close()


if __name__ == "__main__":
    run(main)
