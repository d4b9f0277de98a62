#!/usr/bin/env python3
"""Encoding text: yoke data tokens beside Hugging Face tokenizers, one thread each, in one run.

    .deps/venv/bin/python bench/compare_tokenizers.py [FILE…]   # default: our own pages and sources

Without --tokenizer FILE it trains a byte-level BPE of 32,000 tokens on the text. Both encode the same text in turns; the tokens
are compared. Times are processor time, so that other processes do not count: of encoding alone there, of the whole command here
(reading the tokenizer, writing the files).
"""
import argparse
import os
import pathlib
import resource
import statistics
import struct
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402
from tokenizers import decoders, models, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent


def trained(text):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=32000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return made


def of_children():
    """Processor time of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--tokenizer")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=16, help="the text is repeated up to this size")
    arguments = parser.parse_args()
    files = arguments.files or [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.cpp"))]
    text = "".join(pathlib.Path(file).read_text() for file in files)
    tokenizer = tokenizers.Tokenizer.from_file(arguments.tokenizer) if arguments.tokenizer else trained(text)
    new = len(text.encode())
    text *= max(1, arguments.megabytes * 1_000_000 // new)
    size = len(text.encode())
    lines = text.splitlines(keepends=True)
    times = {"tokenizers, whole text": [], "tokenizers, line by line": [], "yoke": []}
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "text").write_text(text)
        tokenizer.save(str(place / "tokenizer.json"))
        for _ in range(arguments.repeat):
            began = time.process_time()
            theirs = tokenizer.encode(text, add_special_tokens=False).ids
            times["tokenizers, whole text"].append(time.process_time() - began)
            began = time.process_time()
            for line in lines:
                tokenizer.encode(line, add_special_tokens=False)
            times["tokenizers, line by line"].append(time.process_time() - began)
            began = of_children()
            subprocess.run([ROOT / "build/yoke", "data", "tokens", place / "text", "-o", place / "data", "--tokenizer",
                                   place / "tokenizer.json", "--validation", "0", "--quiet"], capture_output=True, check=True)
            times["yoke"].append(of_children() - began)
        width = "H" if tokenizer.get_vocab_size() <= 65536 else "I"
        ours = [one for (one,) in struct.iter_unpack(f"<{width}", (place / "data/train.bin").read_bytes())]
    assert ours == theirs, "the tokens differ"
    print(f"{size / 1e6:.1f} MB of text ({new / 1e6:.1f} MB repeated), {len(theirs)} tokens, vocabulary {tokenizer.get_vocab_size()}, "
          f"tokenizers {tokenizers.__version__}")
    yoke = statistics.median(times["yoke"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:<26} {size / median / 1e6:8.1f} MB/s   {median / yoke:6.1f}x the time")


if __name__ == "__main__":
    main()
