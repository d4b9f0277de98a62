"""`yoke env`: what each launcher's variables mean, set by hand."""
import os

import pytest

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1",
         "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4,3", "SLURM_STEP_NODELIST": "gnode[10,12]"}
LAUNCHERS = ("YOKE_", "SLURM_", "OMPI_", "PMI", "MPI_", "PET_", "TORCHELASTIC_")
PLAIN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in PLAIN:
            monkeypatch.delenv(name)


def test_alone(yoke):
    says = yoke("env", "--json").json
    assert says["source"] == "none" and says["world_size"] == 1 and says["endpoint"] == "" and says["variables"] == []


@pytest.mark.parametrize("variables,source,rank,world,local,local_world,node", [
    (TORCHRUN, "torchrun", 1, 4, 1, 4, 0),
    (SLURM, "slurm", 5, 7, 1, 3, 1),
    ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
      "OMPI_COMM_WORLD_NODE_RANK": "2"}, "openmpi", 2, 3, 2, 3, 0),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, "mpich", 1, 2, 1, 2, 0),
    ({"JOB_COMPLETION_INDEX": "3", "YOKE_WORLD_SIZE": "4", "YOKE_COORDINATOR": "job-0.svc:29400"}, "kubernetes", 3, 4, 0, 1, 3),
], ids=["torchrun", "slurm", "openmpi", "mpich", "kubernetes"])
def test_launchers(yoke, variables, source, rank, world, local, local_world, node):
    says = yoke("env", "--json", env=variables).json
    got = [says[key] for key in ("source", "rank", "world_size", "local_rank", "local_world_size", "node_rank")]
    assert got == [source, rank, world, local, local_world, node]
    assert says["endpoint"]
    assert {v["name"] for v in says["variables"]} <= variables.keys()
    assert all({"name", "value", "used", "why"} == v.keys() and v["why"] for v in says["variables"])
    table = yoke("env", env=variables).out
    assert source in table and all(len(line) <= 80 for line in table.splitlines())


def test_the_key_is_hidden(yoke):
    result = yoke("env", env={"YOKE_RANK": "0", "YOKE_WORLD_SIZE": "1", "YOKE_JOB_KEY": "5ec4e7" * 11})
    assert "5ec4e7" not in result.out + result.err and "(hidden)" in result.out


def test_a_conflict_prints_both_and_is_a_usage_error(yoke):
    result = yoke("env", env={**TORCHRUN, "PMI_RANK": "0", "PMI_SIZE": "2"}, code=2)
    assert "RANK=1 WORLD_SIZE=4" in result.err and "PMI_RANK=0 PMI_SIZE=2" in result.err
    assert yoke("env", "--json", env={**TORCHRUN, "PMI_RANK": "0", "PMI_SIZE": "2"}, code=2).json["exit_code"] == 2


def test_sbatch_without_srun(yoke):
    assert "srun" in yoke("env", env={"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, code=2).err


def test_axes_that_do_not_fit_are_told_and_the_rest_is_shown(yoke):
    variables = {**TORCHRUN, "YOKE_PARALLEL__TENSOR": "3"}
    says = yoke("env", "--json", env=variables).json
    assert says["mesh"] is None and "parallel.tensor = 3" in says["mesh_problem"] and says["rank"] == 1
    table = yoke("env", env=variables).out
    assert "mesh         none: " in table and "torchrun" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    fits = yoke("env", "--json", env={**TORCHRUN, "YOKE_PARALLEL__TENSOR": "2"}).json
    assert fits["mesh_problem"] == "" and [axis["size"] for axis in fits["mesh"]["axes"]] == [1, 2, 2]
