"""Ports for programs that a test starts."""
import random
import socket

_given = set()


def _first_ephemeral():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            return int(file.read().split()[0])
    except OSError:
        return 32768


def free_port():
    """A port of the loopback interface that nobody uses. Not one that the kernel gives to outgoing connections: those of
    other programs could take it before the program that is told to listen there does."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(max(1024, _first_ephemeral() - 12000), _first_ephemeral())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
    raise RuntimeError("no free port below the ephemeral range")
