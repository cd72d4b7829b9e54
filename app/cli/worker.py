"""`specchat worker`: holds layers of models for another machine, by llama.cpp's RPC server."""

from __future__ import annotations

import ipaddress
import signal

import click

from app.config import Options, load_config
from app.locations import locate
from datastores.errors import ModelError

OPEN = (
    "Warning: llama.cpp's RPC has neither encryption nor authentication. Whoever reaches {host} can"
    " use this machine's memory, and read what your models are asked: use a network that you trust."
)


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this address; on any but this machine's own, everyone there can use it.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=50052,
    show_default=True,
    metavar="N",
    help="Listen on this port.",
)
@click.pass_obj
def worker(options: Options, host: str, port: int) -> None:
    """Hold layers of models for another machine.

    On that machine, --rpc ADDRESS:PORT (or the setting `rpc`) puts layers here, on the graphics
    card or else the processor. Both need a llama.cpp with RPC: `specchat doctor` shows how to
    install it. Ctrl+C ends it.
    """
    # Imported here: llama.cpp is not needed for help.
    from engines.llama.threads import default_threads
    from engines.llama.workers import run_worker

    if not _is_loopback(host):
        click.echo(OPEN.format(host=host), err=True)
    threads = load_config(locate(options.data_dir).settings).threads or default_threads()
    # llama.cpp does not return, so Python's own handlers would never run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_worker(host, port, threads)
    raise ModelError(f"cannot listen on {host}:{port}: choose another --port, or another --host")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
