"""Text means the same here and in Hugging Face's tokenizers and transformers: tokens, bytes, and what a model continues."""
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
END = "<|endoftext|>"
PAGES = [file.read_text().replace(END, "") for file in sorted((REPOSITORY / "docs").glob("*.md"))]


def yoke(*arguments):
    program = os.environ.get("YOKE_BIN", str(REPOSITORY / "build" / "yoke"))
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def byte_level(prefix=False, cut=True, whole=False, added=()):
    """A byte-level BPE trained on our pages."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=whole))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=cut)
    made.decoder = decoders.ByteLevel()
    texts = PAGES if cut else [page[:2000] for page in PAGES]
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                        special_tokens=[END], show_progress=False))
    made.add_tokens(list(added))
    return made


PIECES = [*" \n\t\r'abcdeXYZ0189!?.,-_éüßñ日本語Привет🙂", "\u00a0", "\u2003", "\u200b", "\u0301", "\u0660", "\u2167", "½", "'s", "'ll", "'RE",
          "  ", "<|im|>", "<|im|>x", " <mask>", "<mask> ", "the ", "model"]


def random_text(dice):
    kind = dice.random()
    if kind < 0.3:
        page = dice.choice(PAGES)
        begin = dice.randrange(len(page))
        return page[begin:begin + dice.randrange(1, 400)]
    if kind < 0.8:
        return "".join(dice.choice(PIECES) for _ in range(dice.randrange(1, 120)))
    if kind < 0.9:
        return dice.choice("a b1!\n") * dice.randrange(1, 400)
    codes = [dice.randrange(1, dice.choice([0x3000, 0x110000])) for _ in range(60)]
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000) or "x"


def our_tokens(tmp_path, tokenizer, texts):
    """The tokens of each text: files of one call, cut at the token between them."""
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_bytes(text.encode())
    yoke("data", "tokens", *files, "-o", tmp_path / "data", "--tokenizer", tmp_path / "tokenizer.json", "--validation", 0)
    data = (tmp_path / "data/train.bin").read_bytes()
    end, found = tokenizer.token_to_id(END), [[]]
    for token in struct.unpack(f"<{len(data) // 2}H", data):
        if token == end:
            found.append([])
        else:
            found[-1].append(token)
    return found


ADDED = [AddedToken("<|im|>", normalized=False), AddedToken("<|im|>x"), AddedToken("<mask>", lstrip=True, normalized=False),
         AddedToken("!?", rstrip=True), AddedToken("日本", lstrip=True, rstrip=True)]


@pytest.mark.parametrize("options", [{}, {"prefix": True}, {"cut": False}, {"whole": True}, {"added": ADDED}],
                         ids=["plain", "prefix", "one word", "whole words", "added tokens"])
def test_tokens_are_those_of_tokenizers(tmp_path, options):
    dice = random.Random(5)
    tokenizer = byte_level(**options)
    texts = [random_text(dice) for _ in range(600)]
    ours = our_tokens(tmp_path, tokenizer, texts)
    assert len(ours) == len(texts)
    for text, tokens in zip(texts, ours):
        assert tokens == tokenizer.encode(text, add_special_tokens=False).ids, repr(text)


def test_every_character_is_of_the_class_that_tokenizers_gives_it(tmp_path):
    """A character joins letters, numbers, other characters, or none of them."""
    tokenizer = byte_level()
    text = "".join(f"a{one}1{one}!{one}  {one} " for one in map(chr, range(1, 0x32500)) if not "\ud800" <= one <= "\udfff")
    (ours,) = our_tokens(tmp_path, tokenizer, [text])
    assert ours == tokenizer.encode(text, add_special_tokens=False).ids


def test_our_tokenizer_of_bytes_is_read_by_tokenizers(tmp_path):
    (tmp_path / "text").write_text("Grüße, 日本 🙂\n")
    yoke("data", "tokens", tmp_path / "text", "-o", tmp_path / "data", "--validation", 0)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "data/tokenizer.json"))
    text = (tmp_path / "text").read_text()
    assert theirs.encode(text).ids == list(text.encode()) and theirs.decode(list(text.encode())) == text


def random_gpt2(vocabulary):
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_layer=3, n_head=4, n_embd=48, vocab_size=vocabulary, n_positions=96, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():  # so that it does not repeat one token
        parameter.data.add_(torch.randn_like(parameter) * 0.15)
    return model


def greedy(model, ids, count):
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0,
                              attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    return made[0, len(ids):].tolist()


def test_a_greedy_continuation_is_that_of_transformers(tmp_path):
    tokenizer = byte_level()
    model = random_gpt2(tokenizer.get_vocab_size())
    model.save_pretrained(tmp_path / "model")
    tokenizer.save(str(tmp_path / "model/tokenizer.json"))
    for prompt in ("A worker that stalls", "Grüße 🙂", "x"):
        told = yoke("generate", tmp_path / "model", "--prompt", prompt, "--tokens", 60, "--temperature", 0)
        ids = tokenizer.encode(prompt).ids
        assert told["prompt_tokens"] == ids
        expected = greedy(model, ids, 60)
        end = tokenizer.token_to_id(END)
        expected = expected[:expected.index(end) + 1] if end in expected else expected
        assert told["tokens"] == expected and len(set(expected)) > 5


def test_an_exported_run_talks_the_same_in_transformers(tmp_path):
    (tmp_path / "text").write_text("".join(PAGES))
    tokenizer = byte_level()
    tokenizer.save(str(tmp_path / "t.json"))
    yoke("data", "tokens", tmp_path / "text", "-o", tmp_path / "data", "--tokenizer", tmp_path / "t.json")
    yoke("train", REPOSITORY / "configs/text/text_bytes.toml", "--data.dir", tmp_path / "data", "--out.dir", tmp_path / "run", "--steps", 20,
         "--model.vocabulary", 1500, "--model.layers", 2, "--data.batch_size", 4, "--data.limit", 64, "--train.evaluate", "false",
         "--train.warmup_steps", 1, "--train.lr", 0.01)
    yoke("ckpt", "export", tmp_path / "run", "-o", f"{tmp_path}/exported/")
    told = yoke("generate", tmp_path / "run", "--prompt", "The model", "--tokens", 20, "--temperature", 0)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "exported", local_files_only=True).eval()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "exported/tokenizer.json"))
    ids = fast("The model")["input_ids"]
    assert told["tokens"] == greedy(theirs, ids, 20)


@pytest.mark.parametrize("change, said", [({"model_type": "llama"}, "model_type"), ({"n_inner": 7}, "n_inner"), ({"n_head": 0}, "n_head"),
                                          ({"activation_function": "relu"}, "activation_function")])
def test_another_variant_is_refused(tmp_path, change, said):
    random_gpt2(300).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    program = os.environ.get("YOKE_BIN", str(REPOSITORY / "build" / "yoke"))
    done = subprocess.run([program, "generate", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr
