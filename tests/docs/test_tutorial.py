"""The tutorial, followed literally: every command of a page in order, and what the page says appears on the screen."""
import os
import re
import subprocess

import pytest
from conftest import ROOT, YOKE, script

PAGES = sorted((ROOT / "docs/tutorial").glob("[0-9]*.md"))
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[-+]?\d+)?( ?(s|ms|us|min|[kMG]?B|[kMG]iB|GB/s)\b)?|\b[0-9a-f]{32}\b")


def shape(line):
    """A line without what differs between machines: numbers, their units, columns' widths, the host's name."""
    line = re.sub(r"\b[0-9a-f]{32}\b", "#", line)
    line = re.sub(r" on \S+ \(pid", " on HOST (pid", NUMBER.sub("#", line))
    line = re.sub(r"(# )+#?", lambda match: "# " if match.group(0).endswith(" ") else "#", line)
    return " ".join(re.sub(r"#k?\b", "#", line).split())


def parts(page):
    """(commands, expected lines) of each sh block and the text block that follows it."""
    found = []
    for _, language, _, lines in script("doc_blocks").blocks(page):
        if language == "sh":
            found.append(("\n".join(lines).replace("\\\n", " ").splitlines(), []))
        elif language == "text":
            found[-1][1].extend(lines)
    return found


def is_shown(expected, actual):
    """Each expected line occurs, in order; "…" stands for anything."""
    position = 0
    for line in expected:
        wanted = shape(line)
        if wanted == "…":
            continue
        matches = (lambda have: have.startswith(wanted[:-1].rstrip())) if wanted.endswith("…") else (lambda have: have == wanted)
        position = next((at + 1 for at in range(position, len(actual)) if matches(actual[at])), None)
        if position is None:
            return line
    return None


def test_there_are_ten_steps_each_with_its_parts():
    assert len(PAGES) == 10
    for page in PAGES:
        text = page.read_text()
        for part in ("**You learn**", "## Run", "## What happened", "## Exercise", "Next: " if page != PAGES[-1] else "last step"):
            assert part in text, f"{page.name}: {part}"
        assert f"({page.name})" in (page.parent / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_does_what_it_says(page, tmp_path, cache_folder):
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "build").symlink_to(YOKE.parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")} | {"XDG_CACHE_HOME": str(cache_folder)}
    for commands, expected in parts(page):
        screen = ""
        for command in commands:
            code = re.search(r"# exit code (\d+)$", command)
            result = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, timeout=120)
            ended = result.returncode if result.returncode >= 0 else 128 - result.returncode  # as a shell says it
            assert ended == (int(code.group(1)) if code else 0), f"{command}\n{result.stdout}"
            screen += result.stdout
        missing = is_shown(expected, [shape(line) for line in screen.splitlines()])
        assert missing is None, f"{page.name} shows a line that did not appear: {missing}\n{screen}"
