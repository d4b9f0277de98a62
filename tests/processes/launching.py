"""Starting `yoke run` and looking at what it leaves behind."""
import json
import os
import pathlib
import signal
import subprocess
import time

from conftest import ROOT, YOKE

PREFIXES = ("YOKE_", "SLURM_", "OMPI_", "PMI", "MPI_", "PET_", "TORCHELASTIC_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "JOB_COMPLETION_INDEX")


def clean_environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES) and k not in NAMES}
    return {**kept, **{k: str(v) for k, v in more.items()}}


class Job:
    """A `yoke run` in the background; its output goes to files, so that nothing can block."""

    def __init__(self, folder, *words, env=None, stdin=subprocess.DEVNULL):
        self.out_path, self.err_path = folder / "job.out", folder / "job.err"
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.process = subprocess.Popen([str(YOKE), "run", *map(str, words)], stdin=stdin, stdout=out, stderr=err,
                                            env=clean_environment(**(env or {})), cwd=ROOT, start_new_session=True)

    @property
    def out(self):
        return self.out_path.read_text(errors="replace")

    @property
    def err(self):
        return self.err_path.read_text(errors="replace")

    def wait(self, timeout=60):
        return self.process.wait(timeout)

    def wait_for_lines(self, count, containing="", timeout=60):
        wait_until(lambda: sum(containing in line for line in self.out.splitlines()) >= count or self.process.poll() is not None,
                   timeout, lambda: self.out + self.err)
        assert sum(containing in line for line in self.out.splitlines()) >= count, self.out + self.err

    def signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)


class TrainingJob:
    """A `yoke train` of several ranks in the background."""

    def __init__(self, folder, config, *words, yoke=YOKE, env=None):
        self.folder, self.log = folder, folder / "job.err"
        with open(self.log, "w") as err:
            self.process = subprocess.Popen([str(yoke), "train", str(config), "--out.dir", str(folder / "run"), "--out.log_every", "10", "--train.threads", "1",
                                             "--json", *map(str, words)], stdout=subprocess.PIPE, stderr=err, env=clean_environment(**(env or {})), cwd=ROOT,
                                            start_new_session=True, text=True)

    def children(self):
        """The launcher's: process ids and environments."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if parent_of(entry.name) == self.process.pid:
                    found[int(entry.name)] = dict(one.decode().split("=", 1) for one in (entry / "environ").read_bytes().split(b"\0") if b"=" in one)
            except OSError:
                pass
        return found

    def ranks(self):
        return {int(environment["YOKE_RANK"]): pid for pid, environment in self.children().items() if "YOKE_RANK" in environment}

    def rank(self, number):
        return self.ranks()[number]

    def steps(self):
        file = self.folder / "run/metrics.jsonl"
        return json.loads(file.read_text().splitlines()[-1])["step"] if file.exists() and file.read_text() else 0

    def wait_for_step(self, step):
        wait_until(lambda: self.steps() >= step or self.process.poll() is not None, 120, self.log.read_text)
        assert self.process.poll() is None, self.log.read_text()

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def wait_until(condition, timeout, tell=lambda: ""):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, tell()
        time.sleep(0.01)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
