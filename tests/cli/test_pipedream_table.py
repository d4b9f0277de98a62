"""docs/pipedream.md is what tools/pipedream_table writes."""
import subprocess
import sys

from conftest import ROOT, YOKE


def table(*words):
    return subprocess.run([sys.executable, ROOT / "tools/pipedream_table", "--yoke", YOKE, *map(str, words)], capture_output=True, text=True, timeout=300)


def test_the_page_is_up_to_date(tmp_path):
    result = table("-o", tmp_path / "page.md")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "page.md").read_text()
    assert page == (ROOT / "docs/pipedream.md").read_text(), "docs/pipedream.md differs: run tools/pipedream_table"
    for row in ("| VGG16 | 8 (A) |", "| VGG16 | 16 (A) |", "| Inception-v3 | 8 (B) |", "| S2VT | 4 (A) |"):
        assert row in page


def test_without_profiles_it_says_what_to_give(tmp_path):
    result = table("--profiles", tmp_path, "-o", tmp_path / "page.md")
    assert result.returncode != 0 and "--profiles DIR" in result.stderr and not (tmp_path / "page.md").exists()
