"""A project of a few lines builds against the installed package."""
import subprocess

import pytest
from conftest import ROOT, YOKE

CONSUMER = ROOT / "tests/interop/consumer"


def run(*words, check=True):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=900)
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result


def libtorch():
    lines = (YOKE.parent / "CMakeCache.txt").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith("LibTorch_FOUND_ROOT"))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", YOKE.parent, "--prefix", path)
    return path


def configure(build, prefix, *more, check=True):
    return run("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
               "-DCMAKE_BUILD_TYPE=Debug", *more, check=check)


def test_consumer_project_builds_and_runs(prefix, tmp_path):
    """With the prefix alone: the package finds the LibTorch it was built with, and asks for C++20 itself."""
    configured = configure(tmp_path / "build", prefix)
    assert f"from the one yoke was built with: {libtorch()}" in configured.stdout
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build/consumer").stdout == "consumer: 58 parameters\n"
    (tmp_path / "pair.toml").write_text('[model]\nname = "pair"\n[data]\nbatch_size = 8\n[train]\nsteps = 4\n')
    trained = run(tmp_path / "build/own_command", "train", tmp_path / "pair.toml", "--nproc", 2, "--out.dir", tmp_path / "run", "--json")
    assert '"model": "pair"' in trained.stdout


def test_a_libtorch_that_is_given_comes_first(prefix, tmp_path):
    configured = configure(tmp_path / "build", prefix, f"-DTorch_DIR={libtorch()}/share/cmake/Torch")
    assert f"from Torch_DIR: {libtorch()}" in configured.stdout


def test_a_libtorch_that_is_gone_is_named(prefix, tmp_path):
    copy = tmp_path / "prefix"
    subprocess.run(["cp", "-a", prefix, copy], check=True)
    for path in copy.rglob("yokeConfig.cmake"):
        path.write_text(path.read_text().replace(libtorch(), "/nowhere/libtorch"))
    # No python3 on this path: its torch would be taken.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tools / "python3").chmod(0o755)
    result = subprocess.run(["env", f"PATH={tools}:/usr/bin:/bin", "cmake", "-S", str(CONSUMER), "-B", str(tmp_path / "build"), "-G",
                             "Ninja", f"-DCMAKE_PREFIX_PATH={copy}"], capture_output=True, text=True, timeout=300)
    said = " ".join((result.stdout + result.stderr).split())
    assert result.returncode != 0 and "in /nowhere/libtorch, which is gone. Set Torch_DIR" in said, said


def test_nothing_installed_mentions_the_build_tree(prefix):
    for path in prefix.rglob("*.cmake"):
        assert str(YOKE.parent) not in path.read_text(), path
    assert "train" in run(prefix / "bin/yoke", "--help").stdout


def test_headers_of_tests_are_not_installed(prefix):
    headers = [path.name for path in (prefix / "include").rglob("*.h")]
    assert "yoke.h" in headers
    assert not [name for name in headers if "test" in name]


def test_targets_ask_for_their_standard(prefix):
    targets = "".join(path.read_text() for path in prefix.rglob("yokeCoreTargets.cmake"))
    assert 'INTERFACE_COMPILE_FEATURES "cxx_std_20"' in targets
