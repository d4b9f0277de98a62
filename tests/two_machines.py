"""Two machines in miniature: network namespaces joined by a veth pair, for tests and benchmarks. Needs root, ip and tc."""
import os
import shutil
import subprocess


def why_not():
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [word for word in ("ip", "tc") if not shutil.which(word)]
    return f"network namespaces need {' and '.join(missing)}" if missing else None


def sh(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


class Machines:
    """Namespaces a and b with the addresses 10.83.0.1 and 10.83.0.2. A context manager: they are gone at its end."""

    head = "10.83.0.1"

    def __init__(self):
        self.names = [f"yoke-{os.getpid()}-{end}" for end in "ab"]

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
        sh("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        for index, name in enumerate(self.names):
            sh("ip", "-n", name, "addr", "add", f"10.83.0.{index + 1}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for name in self.names:
            sh("ip", "netns", "del", name, check=False)

    def shape(self, rate):
        """Both ends send at most `rate` (as tc writes it: 1gbit)."""
        for node in range(2):
            sh(*self.inside(node), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency",
               "50ms")

    def inside(self, node):
        """What a command starts with to run on that machine."""
        return ["ip", "netns", "exec", self.names[node]]

    def run(self, yoke, node, secret, *words, nproc=1, **options):
        """Starts `yoke run` as one of two nodes, with WORDS as the ranks' program."""
        command = [*self.inside(node), yoke, "run", "--nnodes", 2, "--nproc-per-node", nproc, "--node-rank", node, "--rdzv-endpoint",
                   f"{self.head}:29571", "--rdzv-id", "pair", "--secret-file", secret, *words]
        return subprocess.Popen([str(w) for w in command], stderr=subprocess.PIPE, text=True, **options)


def make_secret(path):
    """A key file as `--secret-file` wants it."""
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path
