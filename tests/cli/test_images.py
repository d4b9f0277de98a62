"""Training on folders and archives of pictures that the test makes."""
import io
import json
import random
import tarfile

import pytest

Image = pytest.importorskip("PIL.Image", reason="tools/setup --oracles")

CLASSES = ("checks", "columns", "rows")
RECIPE = "configs/imagenette_resnet18.toml"
LENET = ["--model.name", "lenet", "--model.classes", 3, "--data.name", "images", "--data.batch_size", 20, "--train.optimizer", "adamw", "--train.lr",
         0.003, "--train.threads", 1, "--checkpoint.every_steps", 0]


def picture(kind, draw):
    """Stripes or squares of random widths and colours on a random ground."""
    width, height = draw.randint(40, 90), draw.randint(40, 90)
    period = draw.randint(8, 16)
    colours = [tuple(draw.randint(0, 100) for _ in range(3)), tuple(draw.randint(155, 255) for _ in range(3))]
    marks = {"columns": lambda x, y: x // period, "rows": lambda x, y: y // period, "checks": lambda x, y: x // period + y // period}[kind]
    image = Image.new("RGB", (width, height))
    image.putdata([colours[marks(x, y) % 2] for y in range(height) for x in range(width)])
    return image


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """300 JPEG files of three classes, 240 of them to train on."""
    folder, draw = tmp_path_factory.mktemp("pictures"), random.Random(1)
    for i in range(300):
        kind = CLASSES[i % 3]
        path = folder / ("train" if i < 240 else "val") / kind / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(kind, draw).save(path, quality=90)
    return folder


def train(yoke, folder, run, *words, **options):
    return yoke("train", "configs/lenet_fashion.toml", *LENET, "--data.dir", folder, "--out.dir", run, "--resume", "never", "--json", *words, **options)


def test_a_small_net_learns_the_pictures_of_a_folder(yoke, tmp_path, pictures):
    run = tmp_path / "run"
    summary = train(yoke, pictures, run, "--steps", 120, "--data.workers", 2).json
    assert summary["accuracy"] > 0.8
    classes = summary["classes"]
    assert classes["names"] == list(CLASSES) and classes["samples"] == [20, 20, 20]
    assert sum(classes["correct"]) == round(summary["accuracy"] * 60)
    assert [sum(row) for row in classes["confusion"]] == classes["samples"]
    report = (run / "report.html").read_text()
    assert "Confusion matrix" in report and "columns taken for rows" in report


@pytest.mark.parametrize("words", [["--data.workers", 3], ["--nproc", 2, "--data.batch_size", 10], ["--nproc", 2, "--parallel.zero", 1, "--data.batch_size", 10]])
def test_ranks_and_threads_change_neither_pictures_nor_results(yoke, tmp_path, pictures, words):
    augmented = ["--steps", 6, "--data.augment", "imagenet", "--data.jitter", 0.3, "--data.mixup", 0.2]
    alone = train(yoke, pictures, tmp_path / "alone", *augmented, "--data.workers", 0).json
    other = train(yoke, pictures, tmp_path / "other", *augmented, *words).json
    for key in ("final_loss", "eval_loss", "accuracy"):
        assert other[key] == pytest.approx(alone[key], rel=1e-4), key
    assert other["classes"] == alone["classes"]


def test_archives_train_as_folders_do(yoke, tmp_path, pictures):
    packed = tmp_path / "packed"
    packed.mkdir()
    for split in ("train", "val"):
        files = sorted((pictures / split).rglob("*.jpg"))
        with tarfile.open(packed / f"{split}.tar", "w") as archive:
            for file in files:
                archive.add(file, file.relative_to(pictures))
    results = [train(yoke, folder, tmp_path / folder.name, "--steps", 4).json["final_loss"] for folder in (pictures, packed)]
    assert results[0] == results[1]


def test_the_recipe_trains(yoke, tmp_path, pictures):
    summary = yoke("train", RECIPE, "--data.dir", pictures, "--model.classes", 3, "--model.image_size", 32, "--data.batch_size", 8, "--steps", 2,
                   "--data.limit", 16, "--checkpoint.every_steps", 0, "--out.dir", tmp_path / "run", "--json").json
    assert summary["steps"] == 2 and summary["final_loss"] == summary["final_loss"]


def test_eval_counts_classes_too(yoke, tmp_path, pictures):
    yoke("model", "export", "lenet", "--model.classes", 3, "-o", tmp_path / "w.safetensors")
    result = yoke("eval", "configs/lenet_fashion.toml", "--model.classes", 3, "--data.name", "images", "--data.dir", pictures, "--data.workers", 2,
                  "--init", tmp_path / "w.safetensors", "--json").json
    assert result["samples"] == 60 and sum(result["classes"]["samples"]) == 60


def test_five_guesses_are_counted_with_many_classes(yoke, tmp_path):
    summary = yoke("train", "configs/lenet_fashion.toml", "--data.name", "synthetic", "--data.samples", 64, "--steps", 2, "--checkpoint.every_steps", 0,
                   "--out.dir", tmp_path / "run", "--json").json
    assert summary["accuracy"] <= summary["top5_accuracy"] <= 1 and len(summary["classes"]["accuracy"]) == 10


@pytest.fixture
def own_pictures(tmp_path, pictures):
    """A folder of links that a test may break."""
    folder = tmp_path / "own"
    for file in sorted(pictures.rglob("*.jpg")):
        link = folder / file.relative_to(pictures)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return folder


def replace(path, content):
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def test_broken_files_stop_the_run_or_are_named_and_skipped(yoke, tmp_path, own_pictures):
    whole = next((own_pictures / "train/rows").iterdir()).read_bytes()
    replace(own_pictures / "train/rows/002.jpg", whole[:-50])
    replace(own_pictures / "val/rows/242.jpg", b"nothing")
    stopped = train(yoke, own_pictures, tmp_path / "stop", "--steps", 14, code=2)
    assert "train/rows/002.jpg: " in stopped.err and "ends early" in stopped.err and "data.on_bad_file" in stopped.err
    skipped = train(yoke, own_pictures, tmp_path / "skip", "--steps", 14, "--data.on_bad_file", "skip")
    assert skipped.err.count("train/rows/002.jpg") == 1 and skipped.err.count("val/rows/242.jpg") == 1
    assert skipped.json["classes"]["samples"] == [20, 20, 19]


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def test_pictures_of_every_kind_are_read(yoke, tmp_path, own_pictures):
    rows = own_pictures / "train/rows"
    grey = Image.new("L", (50, 40), 77)
    replace(rows / "a.jpg", encoded(grey, "JPEG"))
    replace(rows / "b.jpg", encoded(Image.new("CMYK", (50, 40), (9, 99, 0, 9)), "JPEG"))
    replace(rows / "c.jpg", encoded(Image.new("RGB", (50, 40)), "JPEG", progressive=True))
    replace(rows / "d.png", encoded(grey.convert("P"), "PNG"))
    replace(rows / "e.png", encoded(Image.new("I;16", (50, 40), 30000), "PNG"))
    replace(rows / "f.PNG", encoded(Image.new("RGBA", (50, 40)), "PNG"))
    replace(rows / "g.png", encoded(Image.new("1", (50, 40)), "PNG"))
    replace(rows / "h.png", encoded(Image.new("LA", (1, 1)), "PNG"))
    assert train(yoke, own_pictures, tmp_path / "run", "--steps", 13).json["steps"] == 13


@pytest.mark.parametrize("spoil, said", [
    (lambda folder: (folder / "train/empty").mkdir(), "train/empty has no .jpg, .jpeg or .png file"),
    (lambda folder: (folder / "val").rename(folder / "away"), "train.evaluate = false"),
    (lambda folder: (folder / "val/rows").rename(folder / "val/lines"), "Only in the training set: rows. Only in the test set: lines."),
    (lambda folder: (folder / "train").rename(folder / "away"), "found none of"),
    (lambda folder: (folder / "train/more.tar").write_bytes(b"x" * 600), "class folders"),
])
def test_folders_that_cannot_be_right_are_refused(yoke, tmp_path, own_pictures, spoil, said):
    spoil(own_pictures)
    assert said in train(yoke, own_pictures, tmp_path / "run", "--steps", 1, code=2).err


def archive_with(path, name, content=b"x"):
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize("spoil, said", [
    (lambda path: archive_with(path, "../outside/1.jpg"), "outside the archive's folder"),
    (lambda path: path.write_bytes(b"x" * 5000), "byte 0: a number in a header is not octal"),
    (lambda path: archive_with(path, "1.jpg"), "lies in no folder"),
    (lambda path: path.write_bytes(path.read_bytes()[:700]), "the archive ends"),
])
def test_damaged_archives_are_refused(yoke, tmp_path, spoil, said):
    archive_with(tmp_path / "train.tar", "rows/1.jpg", b"x" * 3000)
    spoil(tmp_path / "train.tar")
    assert said in train(yoke, tmp_path, tmp_path / "run", "--steps", 1, code=2).err


def test_wrong_numbers_of_classes_are_named(yoke, tmp_path, pictures):
    done = train(yoke, pictures, tmp_path / "run", "--model.classes", 4, "--steps", 1, code=2)
    assert "3 classes" in done.err and "model.classes" in done.err


def test_keys_of_pictures_are_refused_for_other_data(yoke, tmp_path):
    done = yoke("train", "configs/mlp_tiny.toml", "--data.augment", "imagenet", "--steps", 1, "--out.dir", tmp_path / "run", code=2)
    assert "data.augment" in done.err and "it is for images" in done.err
    assert json.dumps(done.out) == '""'
