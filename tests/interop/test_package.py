"""A project of a few lines builds against the installed package."""
import os
import subprocess

from conftest import ROOT, YOKE


def test_consumer_project_builds_and_runs(tmp_path):
    build = YOKE.parent
    prefix = tmp_path / "prefix"
    run = lambda *words: subprocess.run(words, check=True, capture_output=True, text=True, timeout=900)
    run("cmake", "--install", str(build), "--prefix", str(prefix))
    torch = next(line for line in (build / "CMakeCache.txt").read_text().splitlines() if line.startswith("LibTorch_FOUND_ROOT"))
    torch_dir = torch.split("=", 1)[1] + "/share/cmake/Torch"
    configured = run("cmake", "-S", str(ROOT / "tests/interop/consumer"), "-B", str(tmp_path / "build"), "-G", "Ninja",
                     f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTorch_DIR={torch_dir}", "-DCMAKE_BUILD_TYPE=Debug")
    assert "LibTorch" in configured.stdout
    run("cmake", "--build", str(tmp_path / "build"))
    result = run(str(tmp_path / "build/consumer"))
    assert result.stdout == "consumer: 58 parameters\n"


def test_nothing_installed_mentions_the_build_tree(tmp_path):
    prefix = tmp_path / "prefix"
    subprocess.run(["cmake", "--install", str(YOKE.parent), "--prefix", str(prefix)], check=True, capture_output=True)
    for path in prefix.rglob("*.cmake"):
        assert str(YOKE.parent) not in path.read_text(), path
    help_text = subprocess.run([str(prefix / "bin/yoke"), "--help"], check=True, capture_output=True, text=True).stdout
    assert "train" in help_text
