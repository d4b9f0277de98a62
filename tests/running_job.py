"""A job that trains in the background while a test does something to it."""
import json
import pathlib
import signal
import subprocess
import time

from conftest import YOKE


class Started:
    """A program in the background; its output goes to files."""

    def __init__(self, name, words, **options):
        self.name = name
        self.out, self.err = open(f"{name}.out", "w+"), open(f"{name}.err", "w+")
        self.process = subprocess.Popen([YOKE, *[str(word) for word in words]], stdout=self.out, stderr=self.err, text=True, **options)

    def said(self):
        self.err.flush()
        return open(self.err.name).read()

    def await_words(self, words, times=1):
        limit = time.monotonic() + 120
        while self.said().count(words) < times:
            if time.monotonic() > limit or self.process.poll() is not None:
                raise AssertionError(f"'{words}' was not said {times} times: {self.said()}")
            time.sleep(0.02)

    def rank(self, number):
        """Process id of a rank that the program has started."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid and f"YOKE_RANK={number}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
            except (OSError, ValueError):
                pass
        raise AssertionError(f"rank {number} is not running: {self.said()}")

    def stop(self):
        """The summary of a job without an end, whose folder is its name, once it has been told to stop."""
        self.process.send_signal(signal.SIGTERM)
        assert self.end() == 128 + signal.SIGTERM, self.said()
        return json.loads((pathlib.Path(self.name) / "summary.json").read_text())

    def end(self):
        self.process.wait(timeout=180)
        return self.process.returncode

    def json(self):
        return json.loads(open(self.out.name).read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.out.close()
        self.err.close()


def await_version(yoke, folder, at_least=1):
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        if (folder / "job.json").exists() and (folder / "config.toml").exists():
            seen = yoke("ps", "top", folder, "--once", "--json", code=None)
            if seen.code == 0 and seen.json.get("version", 0) >= at_least:
                return seen.json
        time.sleep(0.05)
    raise AssertionError(f"version {at_least} was not reached")
