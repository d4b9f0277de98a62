"""Starting `yoke run` and looking at what it leaves behind."""
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
