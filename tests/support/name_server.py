"""A name server that resolves every name to one address, over UDP and TCP."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

# No machine has this address.
EVERYBODY = "192.0.2.7"
_ADDRESS_RECORD = 1


@contextmanager
def name_server(address: str) -> Iterator[None]:
    """Answers on port 53 of `address`, which must be an address of the host."""
    with ExitStack() as stack:
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind((address, 53))
        streams = stack.enter_context(socket.create_server((address, 53)))
        threads = [
            threading.Thread(target=_serve_datagrams, args=(datagrams,)),
            threading.Thread(target=_serve_streams, args=(streams,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for server in (datagrams, streams):
                with suppress(OSError):  # not connected, but woken all the same
                    server.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _serve_datagrams(server: socket.socket) -> None:
    while True:
        question, peer = server.recvfrom(4096)
        if not question:  # shut down
            return
        server.sendto(answer(question), peer)


def _serve_streams(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer, suppress(OSError):
                peer.settimeout(10)
                text = answer(peer.recv(4096)[2:])
                peer.sendall(struct.pack("!H", len(text)) + text)


def answer(question: bytes) -> bytes:
    """The answer to a question for an address; for others, an empty answer."""
    end = 12
    while question[end]:
        end += 1 + question[end]
    end += 5
    (kind,) = struct.unpack_from("!H", question, end - 4)
    found = kind == _ADDRESS_RECORD
    head = question[:2] + struct.pack("!HHHHH", 0x8180, 1, int(found), 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, kind, 1, 60, 4) + socket.inet_aton(EVERYBODY)
    return head + question[12:end] + (record if found else b"")
