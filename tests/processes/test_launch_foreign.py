"""Other launchers: `yoke env --json` as the program, under each that is installed."""
import json
import shutil
import subprocess

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment


@pytest.fixture
def identities(tmp_path):
    """What `yoke env --json` says in every process that a launcher's command starts."""
    script = tmp_path / "one.sh"
    script.write_text(f'#!/bin/sh\nexec "{YOKE}" env --json > "{tmp_path}/$$.json"\n')
    script.chmod(0o755)

    def run(*command):
        result = subprocess.run([*map(str, command), str(script)], capture_output=True, text=True, cwd=ROOT, timeout=180,
                                env=clean_environment(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1))
        assert result.returncode == 0, result.stdout + result.stderr
        files = list(tmp_path.glob("*.json"))
        found = [json.loads(file.read_text()) for file in files]
        for file in files:
            file.unlink()
        return found

    return run


def check(found, source, size):
    assert sorted(one["rank"] for one in found) == list(range(size))
    assert {one["world_size"] for one in found} == {size} == {one["local_world_size"] for one in found}
    assert {one["source"] for one in found} == {source}
    assert sorted(one["local_rank"] for one in found) == list(range(size))
    assert len({one["endpoint"] for one in found}) == 1 == len({one["job_id"] for one in found})
    assert sum(one["hosts_coordinator"] for one in found) == 1


def launcher(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


WRAPPED = ["/bin/sh", "-c", '"$@"; true', "wrapped"]  # every rank then has a parent of its own


def test_open_mpi(identities):
    command = [launcher("mpirun.openmpi"), "--oversubscribe", "-np", 3]
    check(identities(*command), "openmpi", 3)
    check(identities(*command, *WRAPPED), "openmpi", 3)


def test_mpich(identities):
    command = [launcher("mpirun.mpich"), "-np", 3]
    check(identities(*command), "mpich", 3)
    check(identities(*command, *WRAPPED), "mpich", 3)


def test_torchrun(identities):
    torchrun = ROOT / ".deps/venv/bin/torchrun"
    if not torchrun.exists():
        pytest.skip("no torchrun in .deps/venv")
    check(identities(torchrun, "--no-python", "--standalone", "--nproc-per-node", 3), "torchrun", 3)


@pytest.mark.parametrize("outer", ["alone", "mpirun.openmpi", "mpirun.mpich"])
def test_yoke_run_itself_and_inside_mpirun(identities, outer):
    command = [] if outer == "alone" else [launcher(outer), "-np", 1]
    found = identities(*command, YOKE, "run", "--nproc", 3)
    for one in found:
        assert one["hosts_coordinator"] is False
        one["hosts_coordinator"] = one["rank"] == 0
        assert all(v["value"] == "(hidden)" for v in one["variables"] if v["name"] == "YOKE_JOB_KEY")
    check(found, "yoke", 3)
