"""Two machines or more in miniature: network namespaces joined by a veth pair or a bridge, for tests and benchmarks. Needs root, ip and tc."""
import collections
import ctypes
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time


def why_not():
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [word for word in ("ip", "tc") if not shutil.which(word)]
    return f"network namespaces need {' and '.join(missing)}" if missing else None


def sh(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


class Machines:
    """Namespaces a, b and so on with the addresses 10.83.0.1, 10.83.0.2, ... A context manager: they are gone at its end."""

    head = "10.83.0.1"

    def __init__(self, count=2):
        self.names = [f"yoke-{os.getpid()}-{end}" for end in "abcdefgh"[:count]]

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        for name in self.names:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        if len(self.names) == 2:
            sh("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        else:
            self._bridge()
        for index, name in enumerate(self.names):
            sh("ip", "-n", name, "addr", "add", f"10.83.0.{index + 1}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")

    def _bridge(self):
        sh("ip", "-n", self.names[0], "link", "add", "eth0", "type", "bridge")
        for index, name in enumerate(self.names[1:]):
            sh("ip", "link", "add", f"port{index}", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", name)
            sh("ip", "-n", self.names[0], "link", "set", f"port{index}", "master", "eth0", "up")

    def __exit__(self, *_):
        for name in self.names:
            sh("ip", "netns", "del", name, check=False)

    def drop(self, node, *which):
        """That machine drops packets that arrive and match one of the nft expressions, until heal()."""
        for rule in ("table inet f", "chain inet f i { type filter hook input priority 0; }", *(f"rule inet f i {one}" for one in which)):
            sh(*self.inside(node), "nft", f"add {rule}")

    def heal(self, node):
        sh(*self.inside(node), "nft", "flush ruleset")

    def shape(self, rate):
        """Both ends send at most `rate` (as tc writes it: 1gbit)."""
        for node in range(2):
            sh(*self.inside(node), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency",
               "50ms")

    def inside(self, node):
        """What a command starts with to run on that machine."""
        return ["ip", "netns", "exec", self.names[node]]

    def run(self, yoke, node, secret, *words, nproc=1, **options):
        """Starts `yoke run` as one of the nodes, with WORDS as the ranks' program."""
        command = [*self.inside(node), yoke, "run", "--nnodes", len(self.names), "--nproc-per-node", nproc, "--node-rank", node, "--rdzv-endpoint",
                   f"{self.head}:29571", "--rdzv-id", "pair", "--secret-file", secret, *words]
        return subprocess.Popen([str(w) for w in command], stderr=subprocess.PIPE, text=True, **options)


class DelayedMachines(Machines):
    """The same, joined by a link whose packets take `delay` seconds each way and get lost with probability `loss`, at `rate` bytes per second. Needs
    /dev/net/tun: the kernel hands every packet to a process, which hands it on later (not every kernel has netem)."""

    def __init__(self, delay, rate=1e9, loss=0, seed=1):
        super().__init__()
        self.link, self.relay = [delay, rate, loss, seed], None

    def _make(self):
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        ends = []
        try:
            for index, name in enumerate(self.names):
                sh("ip", "netns", "add", name)
                sh("ip", "-n", name, "link", "set", "lo", "up")
                enter(f"/run/netns/{name}")
                ends.append(open_tun("eth0"))
                enter(own)
                sh("ip", "-n", name, "addr", "add", f"10.83.0.{index + 1}/24", "dev", "eth0")
                sh("ip", "-n", name, "link", "set", "eth0", "up")
            self.relay = subprocess.Popen([sys.executable, __file__, *map(str, ends + self.link)], pass_fds=ends)
        finally:
            enter(own)
            for one in [own, *ends]:
                os.close(one)

    def __exit__(self, *_):
        if self.relay is not None:
            self.relay.kill()
            self.relay.wait()
        super().__exit__()


def enter(namespace):
    """This thread goes to a network namespace, by descriptor or path."""
    file = os.open(namespace, os.O_RDONLY) if isinstance(namespace, str) else namespace
    failed = ctypes.CDLL(None, use_errno=True).setns(file, 0x40000000)
    if file != namespace:
        os.close(file)
    if failed:
        raise OSError(ctypes.get_errno(), f"setns {namespace}")


def open_tun(name):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
    return tun


def relay(ends, delay, rate, loss, seed, most_waiting=500):
    """Moves packets between two TUN devices until it is killed."""
    draw = random.Random(seed)
    waiting = {end: collections.deque() for end in ends}  # by where they come from: (due, packet)
    free = {end: 0.0 for end in ends}
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        ready, _, _ = select.select(ends, [], [], None if due is None else max(0, due - time.monotonic()))
        now = time.monotonic()
        for end in ready:
            for _ in range(64):
                try:
                    packet = os.read(end, 65536)
                except BlockingIOError:
                    break
                if draw.random() >= loss and len(waiting[end]) < most_waiting:
                    free[end] = max(free[end], now) + len(packet) / rate
                    waiting[end].append((free[end] + delay, packet))
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                try:
                    os.write(ends[1 - ends.index(end)], queue.popleft()[1])
                except OSError:
                    pass  # lost


def make_secret(path):
    """A key file as `--secret-file` wants it."""
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


if __name__ == "__main__":
    relay([int(word) for word in sys.argv[1:3]], *map(float, sys.argv[3:6]), seed=int(sys.argv[6]))
