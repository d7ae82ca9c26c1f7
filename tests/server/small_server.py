"""A server for the small model in its own process, for long runs: python -m tests.server.small_server."""

import socket
import warnings

import torch
import uvicorn

from bagcert.server.app import build_app
from bagcert.server.samples import drawn_samples
from tests.server.conftest import small_model


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="PIL")  # as the command does
    listening = socket.create_server(("127.0.0.1", 0))
    app = build_app(small_model(), drawn_samples((12, 12), 3))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
