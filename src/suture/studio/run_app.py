"""Serving of an app on a port of this machine."""

import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from suture.core.errors import UserError

LOCAL_HOST = "127.0.0.1"


def run_app(app: FastAPI, port: int, announce: Callable[[str], None], host: str = LOCAL_HOST) -> None:
    """Serve an app until the process is stopped.

    Args:
        app: The app.
        port: Port; 0 takes a free one.
        announce: Called with the address, once it answers.
        host: Address to listen on.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # from now on requests wait for the app
    except OSError as error:
        raise UserError(f"{host}:{port} cannot be used ({error.strerror}): choose another port with --port.") from error
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    announce(f"http://{host}:{listener.getsockname()[1]}")
    uvicorn.Server(config).run(sockets=[listener])
