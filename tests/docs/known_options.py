"""Whether the options of a printed command exist, without running it."""
import re
import shlex

from conftest import ROOT

GROUPS = ("lab", "bench", "topo", "model", "ckpt", "ps", "collab", "data", "config")


def mistakes(yoke, command):
    """What is wrong with `yoke …` (words after the program's name): options, keys and recipes that do not exist."""
    words = shlex.split(command)
    name = words[:2] if words[0] in GROUPS else words[:1]
    text = yoke(*name, "--help").out
    keys = (ROOT / "docs/configuration.md").read_text()
    found = []
    for option in (word.split("=")[0] for word in words if re.match(r"--\w", word)):
        known = f"`{option[2:]} = " in keys if "." in option else re.search(rf"(?<![\w-]){option}(?![\w-])", text)
        if not known:
            found.append(f"{command}: {option}")
    return found + [f"{command}: {word}" for word in words if re.fullmatch(r"configs/\S+\.toml", word) and not (ROOT / word).exists()]
