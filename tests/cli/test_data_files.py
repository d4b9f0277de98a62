"""Files of data as users have them: without a test file, with other labels, with wider tokens."""
import math
import struct

import pytest


def lines(labels):
    return "".join(f"{label} {1 + i % 7}:1 {9 + i % 5}:0.5\n" for i, label in enumerate(labels * 16))


@pytest.fixture
def sparse(tmp_path, yoke):
    def train(file, *words):
        return yoke("train", "configs/sparse_lr.toml", "--data.name", "libsvm", "--data.dir", file, "--model.features", 16, "--steps", 4,
                    "--data.batch_size", 4, "--data.limit", 0, "--out.dir", tmp_path / "run", "--resume", "never", "--json", *words)
    return train


def test_libsvm_without_a_test_file_trains_without_evaluation_and_says_so(tmp_path, sparse):
    file = tmp_path / "mine.txt"
    file.write_text(lines(["1", "2"]))
    done = sparse(file)
    assert f"no test file ({file}.t): training without evaluation" in done.err
    assert done.json["steps"] == 4 and math.isfinite(done.json["final_loss"]) and "accuracy" not in done.json


def test_it_is_said_once_on_several_ranks(tmp_path, sparse):
    file = tmp_path / "mine.txt"
    file.write_text(lines(["1", "2"]))
    assert sparse(file, "--nproc", 2, "--train.threads", 1).err.count("training without evaluation") == 1


@pytest.mark.parametrize("name,test", [("a9a", "a9a.t"), ("rcv1_train.txt", "rcv1_test.txt")])
def test_libsvm_with_a_test_file_is_evaluated(tmp_path, sparse, name, test):
    (tmp_path / name).write_text(lines(["+1", "-1"]))
    (tmp_path / test).write_text(lines(["+1", "-1"]))
    done = sparse(tmp_path / name)
    assert "without evaluation" not in done.err and 0 <= done.json["accuracy"] <= 1


def test_tokens_of_32_bits_train_as_tokens_of_16_do(tmp_path, yoke):
    tokens = [(7 * i) % 250 for i in range(2000)]
    hashes = set()
    for kind in ("H", "I"):
        folder = tmp_path / kind
        folder.mkdir()
        for name in ("train.bin", "val.bin"):
            (folder / name).write_bytes(struct.pack(f"<{len(tokens)}{kind}", *tokens))
        summary = yoke("train", "configs/gpt2_tiny.toml", "--data.name", "tokens", "--data.dir", folder, "--data.batch_size", 4,
                       "--steps", 2, "--out.dir", folder / "run", "--json").json
        assert math.isfinite(summary["final_loss"])
        hashes.add(summary["parameter_hash"])
    assert len(hashes) == 1


def test_cifar_100_is_read_as_it_is_published(tmp_path, yoke):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_text("".join(f"class{i}\n" for i in range(100)))
    for name, count in (("train.bin", 32), ("test.bin", 8)):  # superclass, class, three planes
        (folder / name).write_bytes(b"".join(bytes([i % 20, 3 * i]) + bytes([i]) * 3072 for i in range(count)))
    words = ["train", "configs/vgg_small.toml", "--data.name", "cifar100", "--data.dir", tmp_path, "--data.batch_size", 8, "--train.threads", 1,
             "--steps", 2, "--out.dir", tmp_path / "run", "--json"]
    done = yoke(*words, "--model.classes", 100).json
    assert done["steps"] == 2 and math.isfinite(done["final_loss"]) and 0 <= done["accuracy"] <= 1
    assert "100" in yoke(*words, "--out.dir", tmp_path / "other", code=2).err  # the model has 10 classes
    (folder / "train.bin").write_bytes(bytes([20]) + bytes(3073))
    assert "train.bin, byte 0: expected a label 0..19, found 20" in yoke(*words, "--model.classes", 100, code=2).err
