"""Fixtures for the tests that drive the built program."""
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from two_machines import Machines, make_secret, why_not

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = pathlib.Path(os.environ.get("YOKE_BIN", ROOT / "build/yoke"))

# Background jobs and nohup make a process deaf to these, and its children with it. What we start must hear them, and does: a
# handler, unlike deafness, is not inherited by another program.
for deaf in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(deaf) == signal.SIG_IGN:
        signal.signal(deaf, lambda *_: None)


def script(name):
    """tools/NAME as a module: Python without a suffix."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory):
    """Measured choices are shared by the tests of one session, and by nothing else."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def machines(request):
    """Network namespaces as machines: two, or as many as the test asks for (indirectly). Skips where there can be none."""
    if reason := why_not() or (None if shutil.which("nft") else "nft is not installed"):
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Machines(getattr(request, "param", 2)))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield made


@pytest.fixture
def secret(tmp_path):
    """A key file as `--secret-file` wants it."""
    return make_secret(tmp_path / "secret")


@pytest.fixture
def yoke(cache_folder, tmp_path):
    """Runs `yoke WORDS…` from the repository's root and gives code, out and err. `code` checks the exit code."""

    def run(*words, code=0, env=None, cwd=ROOT, timeout=300, **options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")}
        environment["XDG_CACHE_HOME"] = str(cache_folder)
        environment.update(env or {})
        process = subprocess.run([str(YOKE), *map(str, words)], capture_output=True, text=True, env=environment,
                                 cwd=cwd, timeout=timeout, **options)
        if code is not None:
            assert process.returncode == code, f"exit {process.returncode}\n{process.stdout}\n{process.stderr}"
        return Result(process)

    return run
