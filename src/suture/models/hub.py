"""The hub of weights, where it cannot be reached: its library would try again and again for half a minute."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants

from suture.core.errors import UserError


@contextmanager
def hub() -> Iterator[None]:
    """Weights that are fetched in this block come from the cache alone, at once, if the hub's name is unknown here."""
    host = urlsplit(constants.ENDPOINT).hostname or ""
    # Behind a proxy, this machine need not know any names.
    if constants.HF_HUB_OFFLINE or getproxies() or _is_known(host):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "huggingface_hub":
            raise
        raise UserError(
            f"model.weights: they are not on this machine yet, and {host} cannot be reached: check the network, or set "
            "model.weights to the path of a weights file, or to null for random weights; --preset demo needs none."
        ) from None  # what the library says of it is sixty lines
    finally:
        constants.HF_HUB_OFFLINE = False


def _is_known(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True
