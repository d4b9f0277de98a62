"""Every C++ block of README.md and docs/ compiles as printed, and runs on two ranks (tools/doc_blocks)."""
import subprocess

import pytest
from conftest import ROOT, YOKE, script

PROGRAM = YOKE.parent / "yoke_doc_blocks"


def printed():
    """PAGE:LINE of each block, found without tools/doc_blocks."""
    names = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            if line == "```cpp":
                names.append(f"{page.relative_to(ROOT)}:{number + 1}")
    return names


def test_no_block_is_left_out():
    listed = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=60).stdout.split()
    assert listed == printed() and listed


def test_code_is_marked_as_such():
    doc_blocks = script("doc_blocks")
    for page in doc_blocks.pages():
        for line, language, _, text in doc_blocks.blocks(page):
            assert language or "yoke::" not in "\n".join(text), f"{page}:{line}: C++ in a block without ```cpp"


@pytest.mark.parametrize("block", printed())
def test_every_block_runs(yoke, tmp_path, block):
    yoke("run", "--nproc", "2", PROGRAM, block, cwd=tmp_path)
