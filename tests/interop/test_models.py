"""Weights move between this program and torchvision, Hugging Face and plain PyTorch, and mean the same.

Random weights are made there and evaluated here, and the other way round. YOKE_BIN names the program; else build/yoke.
"""

import json
import os
import pathlib
import subprocess
import warnings

import pytest
import torch
import torchvision
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5  # of the largest output, fp32


def yoke(*arguments):
    """Runs the program and returns its JSON document."""
    program = os.environ.get("YOKE_BIN", str(REPOSITORY / "build" / "yoke"))
    assert os.path.exists(program), f"{program} is missing: run `make build` or set YOKE_BIN"
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def model_options(keys):
    return [part for key, value in keys.items() for part in (f"--model.{key}", value)]


def evaluate(folder, name, keys, weights, inputs):
    """The logits that the program computes for one batch."""
    config = folder / "model.toml"
    lines = [f"{key} = {value}" for key, value in keys.items()]
    config.write_text("\n".join(["[model]", f'name = "{name}"', *lines, "[data]", 'name = "synthetic"', ""]))
    given, result = folder / "inputs.safetensors", folder / "outputs.safetensors"
    save_file(inputs, given)
    yoke("eval", config, "--init", weights, "--inputs", given, "--outputs", result)
    return load_file(result)["output"]


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape
    difference = (ours - theirs).abs().max().item()
    assert difference <= TOLERANCE * max(1.0, theirs.abs().max().item())


def randomise_statistics(module):
    """Fresh running means are 0 and variances 1, which would hide a mix-up."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0, 0.2)
            layer.running_mean.normal_(0, 0.2)
            layer.running_var.uniform_(0.5, 1.5)
            layer.num_batches_tracked.fill_(7)


def torchvision_model(name, classes):
    options = {"num_classes": classes}
    if name == "inception_v3":
        options["init_weights"] = False  # its truncated normals take long
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(torchvision.models, name)(**options).eval()


# Name, parameters in its own size, and an image size as small as the architecture allows.
VISION = [("alexnet", 61_100_840, 63), ("vgg16", 138_357_544, 32), ("resnet50", 25_557_032, 64),
          ("vgg11", 132_863_336, 32), ("vgg11_bn", 132_868_840, 32), ("vgg16_bn", 138_365_992, 32), ("resnet18", 11_689_512, 64),
          ("resnet34", 21_797_672, 64), ("resnet101", 44_549_160, 64), ("resnet152", 60_192_808, 64), ("inception_v3", 27_161_264, 75)]
CLASSES = 13


@pytest.mark.parametrize("name, parameters, side", VISION)
def test_names_and_shapes_are_torchvisions(name, parameters, side):
    info = yoke("model", "info", name)
    assert info["parameters"] == parameters
    with torch.device("meta"):
        options = {"init_weights": False} if name.startswith("vgg") or name == "inception_v3" else {}
        theirs = getattr(torchvision.models, name)(**options)
    ours = {tensor["name"]: tuple(tensor["shape"]) for tensor in info["tensors"]}
    state = {key: tuple(value.shape) for key, value in theirs.state_dict().items()}
    assert {key: ours.get(key) for key, _ in theirs.named_parameters()} == {key: tuple(value.shape) for key, value in theirs.named_parameters()}
    assert ours.items() <= state.items()


@pytest.mark.parametrize("name, parameters, side", VISION)
def test_torchvisions_weights_give_the_same_output_here(tmp_path, name, parameters, side):
    torch.manual_seed(1)
    theirs = torchvision_model(name, CLASSES)
    randomise_statistics(theirs)
    weights = tmp_path / "weights.safetensors"
    save_file(theirs.state_dict(), weights)
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        expected = theirs(images)
    ours = evaluate(tmp_path, name, {"classes": CLASSES, "image_size": side}, weights, {"input": images})
    assert_same(ours, expected)


@pytest.mark.parametrize("name, parameters, side", VISION)
def test_weights_from_here_give_the_same_output_in_torchvision(tmp_path, name, parameters, side):
    keys = {"classes": CLASSES, "image_size": side}
    weights = tmp_path / "weights.safetensors"
    yoke("model", "export", name, "-o", weights, "--seed", 5, *model_options(keys))
    with torch.device("meta"):
        theirs = torchvision_model(name, CLASSES)
    theirs.load_state_dict(load_file(weights), strict=True, assign=True)
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        expected = theirs(images)
    assert_same(evaluate(tmp_path, name, keys, weights, {"input": images}), expected)


def two_groups():
    """The AlexNet of 2012 without local response normalisation, under torchvision's names."""
    theirs = torchvision.models.AlexNet(num_classes=CLASSES)
    grouped = [nn.Conv2d(3, 96, 11, 4, 2), nn.Conv2d(96, 256, 5, 1, 2, groups=2), nn.Conv2d(256, 384, 3, 1, 1),
               nn.Conv2d(384, 384, 3, 1, 1, groups=2), nn.Conv2d(384, 256, 3, 1, 1, groups=2)]
    for index, layer in zip((0, 3, 6, 8, 10), grouped):
        theirs.features[index] = layer
    return theirs.eval()


def test_the_alexnet_of_two_groups_means_the_same_both_ways(tmp_path):
    assert yoke("model", "info", "alexnet_original")["parameters"] == 60_965_224
    keys = {"classes": CLASSES, "image_size": 63}
    images = torch.randn(2, 3, 63, 63)
    torch.manual_seed(3)
    theirs = two_groups()
    weights = tmp_path / "theirs.safetensors"
    save_file(theirs.state_dict(), weights)
    with torch.no_grad():
        assert_same(evaluate(tmp_path, "alexnet_original", keys, weights, {"input": images}), theirs(images))
        weights = tmp_path / "ours.safetensors"
        yoke("model", "export", "alexnet_original", "-o", weights, *model_options(keys))
        theirs.load_state_dict(load_file(weights), strict=True)
        assert_same(evaluate(tmp_path, "alexnet_original", keys, weights, {"input": images}), theirs(images))


GPT2 = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 97, "positions": 24}


def hugging_face_gpt2():
    config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=97, n_positions=24)
    model = transformers.GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():  # fresh biases are 0 and norms 1, which would hide a mix-up
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_hugging_faces_gpt2_gives_the_same_output_here(tmp_path, prefix):
    torch.manual_seed(2)
    theirs = hugging_face_gpt2()
    weights = tmp_path / "model.safetensors"
    if prefix:
        theirs.save_pretrained(tmp_path)
        assert any(key.startswith("transformer.") for key in load_file(weights))
    else:
        save_file(theirs.transformer.state_dict(), weights)
    ids = torch.randint(97, (3, 20))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert_same(evaluate(tmp_path, "gpt2", GPT2, weights, {"input_ids": ids}), expected)


def test_gpt2_from_here_gives_the_same_output_in_hugging_face(tmp_path):
    weights = tmp_path / "weights.safetensors"
    yoke("model", "export", "gpt2", "-o", weights, "--seed", 5, *model_options(GPT2))
    theirs = hugging_face_gpt2()
    theirs.transformer.load_state_dict(load_file(weights), strict=True)
    theirs.tie_weights()
    ids = torch.randint(97, (3, 24))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert_same(evaluate(tmp_path, "gpt2", GPT2, weights, {"input_ids": ids}), expected)


def test_an_exported_run_of_gpt2_is_a_folder_for_from_pretrained(tmp_path):
    run, folder = tmp_path / "run", tmp_path / "exported"
    sizes = model_options(GPT2)
    yoke("train", REPOSITORY / "configs/gpt2_tiny.toml", "--steps", 3, "--out.dir", run, "-q", "--train.evaluate", "false", *sizes)
    told = yoke("ckpt", "export", run, "-o", f"{folder}/")
    assert told["file"] == f"{folder}/model.safetensors" and told["config"] == f"{folder}/config.json"
    theirs = transformers.GPT2LMHeadModel.from_pretrained(folder, local_files_only=True).eval()
    assert (theirs.config.n_layer, theirs.config.n_head, theirs.config.n_embd, theirs.config.n_positions) == (2, 4, 32, 24)
    assert theirs.lm_head.weight.data_ptr() == theirs.transformer.wte.weight.data_ptr()
    ids = torch.randint(97, (3, 24))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert_same(evaluate(tmp_path, "gpt2", GPT2, folder / "model.safetensors", {"input_ids": ids}), expected)


@pytest.mark.parametrize("size, parameters", [("124m", 124_439_808), ("1558m", 1_557_611_200)])
def test_gpt2_has_its_published_sizes(size, parameters):
    assert yoke("model", "info", "gpt2", "--model.size", size)["parameters"] == parameters


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def vgg_small():
    layers, previous = [], 3
    for width in (32, 64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(previous, width, 3, padding=1), nn.ReLU()]
            previous = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(1024, 3200), nn.ReLU(), nn.Linear(3200, 3200), nn.ReLU(), nn.Linear(3200, 10))


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


@pytest.mark.parametrize("name, make, shape", [("lenet", lenet, (1, 28, 28)), ("vgg_small", vgg_small, (3, 32, 32)), ("mlp", mlp, (784,))])
def test_a_seed_gives_pytorchs_weights_and_output(tmp_path, name, make, shape):
    weights = tmp_path / "weights.safetensors"
    yoke("model", "export", name, "-o", weights, "--seed", 5)
    torch.manual_seed(5)
    theirs = make().eval()
    ours = load_file(weights)
    names = [tensor["name"] for tensor in yoke("model", "info", name)["tensors"]]
    for key, expected in zip(names, theirs.parameters(), strict=True):
        assert torch.equal(ours[key], expected), key
    inputs = torch.randn(3, *shape)
    with torch.no_grad():
        expected = theirs(inputs)
    assert_same(evaluate(tmp_path, name, {}, weights, {"input": inputs}), expected)
