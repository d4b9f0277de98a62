"""From text files to a model that talks: yoke data tokens, yoke train, yoke generate."""
import json
import math
import os
import re
import resource
import signal
import struct
import subprocess

import pytest
from conftest import ROOT, YOKE

RECIPE = "configs/text/text_bytes.toml"
TINY = ["--model.layers", 1, "--model.heads", 2, "--model.width", 32, "--model.positions", 32, "--data.batch_size", 8]

# Lewis Carroll, 1871.
POEM = """'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe:
All mimsy were the borogoves,
And the mome raths outgrabe.

"Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!"
"""


def letters():
    """GPT-2's character for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(0x100 + moved.index(byte)) for byte in range(256)]


def tokenizer(tmp_path, end=True):
    """A tokenizer.json of the bytes, a few merges, and "<|endoftext|>"."""
    vocabulary = {letter: byte for byte, letter in enumerate(letters())}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("b", "r")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    added = [{"id": len(vocabulary), "content": "<|endoftext|>", "special": True, "normalized": False}] if end else []
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                                "decoder": {"type": "ByteLevel"},
                                "model": {"type": "BPE", "vocab": vocabulary, "merges": [" ".join(pair) for pair in merges]}}))
    return file


def tokens_of(file):
    data = file.read_bytes()
    return list(struct.unpack(f"<{len(data) // 2}H", data))


@pytest.fixture
def poem(tmp_path):
    file = tmp_path / "poem.txt"
    file.write_text(POEM * 20)
    return file


@pytest.fixture
def trained(yoke, tmp_path, poem):
    """Token files of the poem and a run of the recipe at a tiny size: (data folder, run folder, summary)."""
    def train(*words, steps=60, data=()):
        yoke("data", "tokens", poem, "-o", tmp_path / "data", *data)
        summary = yoke("train", RECIPE, *TINY, "--data.dir", tmp_path / "data", "--out.dir", tmp_path / "run", "--train.lr", 0.02,
                       "--train.warmup_steps", 1, "--train.threads", 1, "--steps", steps, "--json", *words).json
        return tmp_path / "data", tmp_path / "run", summary
    return train


def test_bytes_become_tokens_and_the_last_share_is_for_validation(yoke, tmp_path, poem):
    told = yoke("data", "tokens", poem, "-o", tmp_path / "data", "--validation", 0.2, "--json").json
    text = list(poem.read_bytes())
    train, validation = tokens_of(tmp_path / "data/train.bin"), tokens_of(tmp_path / "data/val.bin")
    assert train + validation == text and len(validation) == round(0.2 * len(text))
    assert (told["train"], told["validation"], told["vocabulary"], told["text_bytes"]) == (len(train), len(validation), 256, len(text))
    assert sorted(file.name for file in (tmp_path / "data").iterdir()) == ["tokenizer.json", "train.bin", "val.bin"]


def test_a_tokenizer_is_used_and_kept(yoke, tmp_path, poem):
    told = yoke("data", "tokens", poem, poem, "-o", tmp_path / "data", "--tokenizer", tokenizer(tmp_path), "--validation", 0, "--json").json
    tokens = tokens_of(tmp_path / "data/train.bin")
    assert told["vocabulary"] == 261 and tokens.count(260) == 1 and tokens.count(258) > 20
    names = json.loads((tmp_path / "data/tokenizer.json").read_text())["model"]["vocab"]
    assert names == json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]


def test_the_recipe_learns_a_text_and_generates_it(yoke, trained):
    _, run, summary = trained(steps=150)
    assert summary["final_loss"] < 2.5 and math.isclose(summary["perplexity"], math.exp(summary["eval_loss"]), rel_tol=1e-9)
    assert "Perplexity" in (run / "report.html").read_text()
    greedy = yoke("generate", run, "--prompt", "Beware the", "--tokens", 40, "--temperature", 0)
    assert greedy.out.startswith("Beware the") and greedy.out.endswith("\n") and len(greedy.out) > 40
    drawn = [yoke("generate", run, "--prompt", "All ", "--tokens", 30, "--seed", seed).out for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    told = yoke("generate", run / "checkpoints" / "step-150", "--prompt", "Beware the", "--tokens", 40, "--temperature", 0, "--json").json
    assert told["text"] + "\n" == greedy.out and len(told["tokens"]) == 40 and bytes(told["prompt_tokens"]) == b"Beware the"


def test_perplexity_is_printed_and_evaluated(yoke, trained, tmp_path):
    data, run, summary = trained(steps=5)
    again = yoke("train", RECIPE, *TINY, "--data.dir", data, "--out.dir", tmp_path / "more", "--steps", 2,
                 "--train.warmup_steps", 1)
    assert re.search(r"^  perplexity  \d+\.\d\d$", again.out, re.MULTILINE)
    yoke("ckpt", "export", run, "-o", tmp_path / "w.safetensors")
    told = yoke("eval", RECIPE, *TINY, "--data.dir", data, "--init", tmp_path / "w.safetensors", "--json").json
    assert math.isclose(told["perplexity"], summary["perplexity"], rel_tol=1e-4)


def test_the_run_remembers_the_tokenizer_and_an_export_has_it(yoke, trained, tmp_path):
    data, run, _ = trained("--model.vocabulary", 261, steps=3, data=["--tokenizer", tokenizer(tmp_path)])
    for file in data.iterdir():
        file.unlink()
    told = yoke("generate", run, "--prompt", "the the", "--tokens", 5, "--json").json
    assert told["prompt_tokens"] == [257, 258] and len(told["tokens"]) == 5
    exported = yoke("ckpt", "export", run, "-o", f"{tmp_path}/exported/", "--json").json
    assert exported["tokenizer"] == f"{tmp_path}/exported/tokenizer.json"
    same = yoke("generate", tmp_path / "exported", "--prompt", "the the", "--tokens", 5, "--json").json
    assert same["tokens"] == told["tokens"]


def test_without_a_prompt_it_begins_after_the_end_of_a_text(yoke, trained, tmp_path):
    _, run, _ = trained("--model.vocabulary", 261, steps=2, data=["--tokenizer", tokenizer(tmp_path)])
    assert yoke("generate", run, "--tokens", 3, "--json").json["prompt_tokens"] == [260]
    yoke("data", "tokens", tmp_path / "poem.txt", "-o", tmp_path / "bytes")
    plain = yoke("generate", run, "--tokens", 3, "--tokenizer", tmp_path / "bytes/tokenizer.json", "--json").json
    assert plain["prompt_tokens"] == [10]


@pytest.mark.parametrize("words", [("--parallel.zero", 3), ("--parallel.pipeline", 2, "--parallel.data", 1)])
def test_a_run_of_several_ranks_generates(yoke, trained, words):
    _, run, _ = trained("--nproc", 2, "--model.layers", 2, "--train.precision", "fp32", *words, steps=3)
    assert len(yoke("generate", run, "--prompt", "the", "--tokens", 4, "--json").json["tokens"]) == 4


def test_a_prompt_longer_than_the_context_is_cut_with_a_warning(yoke, trained):
    _, run, _ = trained(steps=2)
    result = yoke("generate", run, "--prompt", "x" * 50, "--tokens", 40)
    assert "the prompt has 50 tokens; the model sees the last 32" in result.err and result.out.startswith("x" * 50)


def test_what_cannot_be_read_is_named_and_the_old_files_stay(yoke, tmp_path, poem):
    out = tmp_path / "data"
    yoke("data", "tokens", poem, "-o", out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes("café au lait".encode("latin-1"))
    (tmp_path / "wide").write_bytes("hello world".encode("utf-16-le"))
    (tmp_path / "wordpiece.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}, "pre_tokenizer": {"type": "BertPreTokenizer"}}')
    known = ["--tokenizer", tokenizer(tmp_path)]
    for words, said in [((tmp_path / "none",), "none: cannot open: No such file"),
                        ((poem, tmp_path / "empty"), "empty: the file is empty"),
                        ((tmp_path,), "Is a directory"),
                        ((poem, tmp_path / "latin", *known), "latin, byte 3: not valid UTF-8 (0xe9)"),
                        ((tmp_path / "wide",), "every second byte is 0"),
                        ((poem, "--tokenizer", poem), "poem.txt:1: not valid JSON"),
                        ((poem, "--tokenizer", tmp_path / "none.json"), "none.json: cannot open"),
                        ((poem, "--tokenizer", tmp_path / "wordpiece.json"), "pre_tokenizer BertPreTokenizer: byte-level BPE has ByteLevel")]:
        assert said in yoke("data", "tokens", *words, "-o", out, code=2).err
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, poem):
    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of write(), as a full disk gives
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    result = subprocess.run([YOKE, "data", "tokens", poem, "-o", tmp_path / "data"], capture_output=True, text=True, preexec_fn=small_files,
                            timeout=60, cwd=ROOT)
    assert result.returncode == 2 and re.search(r"train.bin: cannot write: .*Check the folder and its free space", result.stderr)
    assert list((tmp_path / "data").iterdir()) == []


def test_generate_names_what_is_missing(yoke, trained, tmp_path):
    data, run, _ = trained(steps=1)
    (tmp_path / "empty").mkdir()
    assert "no such folder" in yoke("generate", tmp_path / "none", code=2).err
    assert "is not a folder" in yoke("generate", ROOT / RECIPE, code=2).err
    assert "no checkpoint" in yoke("generate", tmp_path / "empty", code=5).err
    assert "not valid UTF-8" in yoke("generate", run, "--prompt", b"caf\xe9".decode(errors="surrogateescape"), code=2).err
    large = yoke("generate", run, "--prompt", "the", "--tokenizer", tokenizer(tmp_path), code=2)
    assert "token 257 of the prompt is outside the model's vocabulary of 256" in large.err
    (run / "tokenizer.json").unlink()
    assert "--tokenizer FILE" in yoke("generate", run, code=2).err
    assert yoke("generate", run, "--tokens", 2, "--tokenizer", data / "tokenizer.json").out
    yoke("train", "configs/mlp_tiny.toml", "--steps", 1, "--out.dir", tmp_path / "mlp")
    assert "only gpt2 generates text" in yoke("generate", tmp_path / "mlp", code=2).err
    damaged = next((run / "checkpoints/step-1").glob("model*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert "step-1" in yoke("generate", run, "--tokenizer", data / "tokenizer.json", code=5).err


def test_a_closed_output_is_an_error(trained):
    _, run, _ = trained(steps=1)
    with open("/dev/full", "w") as full:
        result = subprocess.run([YOKE, "generate", run, "--tokens", "3"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                env={k: v for k, v in os.environ.items() if not k.startswith("YOKE_")})
    assert result.returncode == 2 and "cannot write to stdout: No space left on device" in result.stderr
