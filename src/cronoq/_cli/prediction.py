"""What the machine would say to a start with these settings, asked without starting: the port, the folder, the file."""

import os
import socket
import sys

from cronoq_sansio.settings import Settings
from cronoq_sansio.settings_check import format_address


def predict(settings: Settings) -> list[str]:
    """Every reason why the server would not start now, each a sentence that begins with the key at fault."""
    problems = []
    if trouble := address_trouble(settings.server.grpc_addr):
        problems.append(f"server.grpc_addr: {trouble}")
    if settings.store.kind == "sqlite" and (trouble := path_trouble(settings.store.path)):
        problems.append(f"store.path: {trouble}")
    return problems


def address_trouble(address: tuple[str, int]) -> str:
    """Why nothing can listen on the address; empty when it can."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if sys.platform != "win32":  # there it would mean "share the port"
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return f"cannot listen on {format_address(address)}: {error.strerror or error}"
    return ""


def path_trouble(path: str) -> str:
    """Why no database can be opened or made at the path; empty when it can. The content is not looked at."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"the folder {folder} does not exist; make it first"
    if os.path.lexists(path):
        if not os.path.isfile(path):
            return f"{path} is not a file"
        if not os.access(path, os.R_OK | os.W_OK):
            return f"{path} is not readable and writable for this user"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {folder} is not writable for this user"
    return ""
