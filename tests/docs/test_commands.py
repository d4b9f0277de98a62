"""Every command of README.md and docs/ that this machine can run, as printed, made small by the environment.

A printed `--steps` of 200 or more becomes 2: such a run takes minutes.
"""
import os
import re
import shlex
import subprocess

import pytest
from conftest import ROOT, YOKE, script
from known_options import mistakes

# Makes any command that trains small; what is printed on the command line wins.
SMALL = {"YOKE_TRAIN__STEPS": "2", "YOKE_DATA__LIMIT": "32", "YOKE_DATA__BATCH_SIZE": "4", "YOKE_TRAIN__EVALUATE": "false"}

# What cannot run here, with the reason. Each entry must match a printed command.
CANNOT = {
    r"--device cuda": "needs a GPU",
    r"^(torchrun|mpirun|srun|sbatch|kubectl) ": "another launcher: tests/processes",
    r"^make (test|demo|install|fuzz|build|check|reliability|quick)": "the suite itself, or the build it runs in",
    r"--nnodes 2": "two machines: tests/processes/test_launch_nodes.py",
    r"^yoke run --requeue ": "a Slurm job: tests/processes/test_slurm_requeue.py",
    r"--rdzv-endpoint HOST:": "several machines: tests/cli/test_elastic_growth.py",
    r"^head -c 32 /dev/urandom": "the key of two machines",
    r"^tools/pipedream_table": "writes docs/pipedream.md: tests/cli/test_pipedream_table.py",
    r"--init resnet50.safetensors": "torchvision's weights: tests/interop/test_models.py",
    r"train configs/imagenette_resnet18.toml": "pictures of the reader's own: tests/cli/test_images.py",
    r"ckpt export runs/resnet50_synthetic": "the run before it",
    r"data/book|runs/gpt2_124m": "the reader's book and tokenizer: tests/cli/test_text.py",
    r"^YOKE_FAULT=": "kills a rank: tests/processes/test_reliability.py",
    r"^build/yoke why DIR$": "a folder of a failed job: tests/processes/test_launch.py",
    r"profile configs/vgg16_synthetic.toml": "VGG16 at full size: tests/cli/test_plan.py",
    r"verify configs/gpt2_tiny.toml .*data=4": "four replicas of GPT-2: tests/cli/test_data_parallel.py",
    r"bench step --model lenet,vgg_small": "VGG at batch 64, four times: tests/cli/test_promises.py",
    r"bench scaling --model lenet --nproc 1,2,4": "measures for minutes: tests/cli/test_data_parallel.py",
    r"bench collectives --nproc 4 --backend shm": "64 MB on four ranks: tests/cli/test_bench_collectives.py",
    r"(train FILE|partition GRAPH|--profile p\.json) ": "words that stand for the reader's own files",
    r"^yoke collab (start|join|watch) ": "peers of one run: tests/cli/test_collab.py",
    r"^yoke ps (top|leave|join) ": "a job that runs: tests/cli/test_ps_elastic.py",
    r"^build/yoke lab averaging": "ten runs of four ranks: tests/cli/test_averaging.py",
    r"^build/yoke lab sparse": "nine runs of four workers: tests/cli/test_lab_sparse.py",
    r"^build/yoke lab downpour": "four runs of four workers: tests/cli/test_sandblaster.py",
    r"^build/yoke lab stragglers --trained": "eight runs of four workers: tests/cli/test_ps_train.py",
    r"^(build/)?yoke lab (batch|collectives|compare|memory|pipeline (?!--quick)|precision|scaling|throughput|staleness|stall|stragglers$)": "seconds to a minute: tests/cli/test_lab.py, with --quick",
}
FIRST = (r"""(?:\$ )?((?:[A-Z_]+=(?:"[^"]*"|\S+) )?(?:build/|tools/)?"""
         r"""(?:yoke|make|torchrun|mpirun|srun|head|pipedream_table|example_\w+)\b.*)""")


def printed():
    """(page, command) of every line of a shell block that is a command."""
    found = []
    doc_blocks = script("doc_blocks")
    for page in doc_blocks.pages():
        if page.parent.name == "tutorial" and page.name != "README.md":
            continue  # test_tutorial.py
        for _, language, _, text in doc_blocks.blocks(page):
            if language not in ("", "sh", "bash", "shell", "console"):
                continue
            for line in "\n".join(text).replace("\\\n", " ").splitlines():
                command = re.fullmatch(FIRST, re.sub(r"\s+#.*", "", line).strip())
                if command:
                    found.append((str(page.relative_to(ROOT)), command.group(1)))
    return found


def why_not(command):
    return next((why for pattern, why in CANNOT.items() if re.search(pattern, command)), None)


RUN = [(page, command) for page, command in printed() if not why_not(command)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkout as commands see it, in which they may write."""
    path = tmp_path_factory.mktemp("checkout")
    for name in ("configs", "examples", "tools", "docs"):
        (path / name).symlink_to(ROOT / name)
    (path / "build").symlink_to(YOKE.parent)
    program = path / "my_program"  # what the pages call the reader's own
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    return path


def test_there_are_commands_and_every_exception_is_used():
    commands = [command for _, command in printed()]
    assert len(RUN) >= 10
    unused = [pattern for pattern in CANNOT if not any(re.search(pattern, command) for command in commands)]
    assert not unused, "exceptions for commands that no page prints"


LABS = sorted({command for _, command in printed() if re.match(r"(build/)?yoke lab \w", command)})


@pytest.mark.parametrize("command", LABS)
def test_options_of_labs_exist(yoke, command):
    assert not mistakes(yoke, command.split("yoke ", 1)[1].replace("-o DIR", ""))


def test_misspelt_options_are_found(yoke):
    assert len(LABS) > 10
    assert mistakes(yoke, "lab scaling --way ddp --nproc 1,2") == ["lab scaling --way ddp --nproc 1,2: --way"]
    assert mistakes(yoke, "lab downpour configs/none.toml --train.rate 1") == [
        "lab downpour configs/none.toml --train.rate 1: --train.rate", "lab downpour configs/none.toml --train.rate 1: configs/none.toml"]


@pytest.mark.parametrize("page,command", RUN, ids=[f"{page}: {command[:60]}" for page, command in RUN])
def test_the_command_runs(folder, page, command, cache_folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")}
    command = re.sub(r"(?<=--steps )[2-9]\d\d\b|(?<=--steps )\d{4,}", "2", command)
    environment |= SMALL | {"PATH": f"{YOKE.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache_folder)}
    assert shlex.split(command)
    result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{page}: {command}\n{result.stdout}\n{result.stderr}"
