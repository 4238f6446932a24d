"""Every net has as many learned values, and the same shapes of its outputs, as the published one."""

from __future__ import annotations

import pytest

from .nets import ALL, MODELS, deployed, full_size, learned, shape_of

ALEXNET, CAFFENET_BODY = 60_965_224, 60_965_224 - 4097 * 1000  # CaffeNet without fc8
RESNET_18 = 11_689_512  # of the paper's net, whose first block has no convolution on its shortcut
LEARNED = {  # the training net's; deploy nets differ where DEPLOYED says so
    "digits": 32 * 26 + 40 * (32 * 9 + 1) + 10 * 41,
    "lenet": 431_080,
    "mnist_autoencoder": sum((a + 1) * b + (b + 1) * a for a, b in ((784, 1000), (1000, 500), (500, 250), (250, 30))),
    "mnist_siamese": 431_080 + 2 * 11,  # LeNet's and `feat`, once for both towers
    "cifar10_quick": 145_578,
    "cifar10_full": 89_578,
    "alexnet": ALEXNET,
    "caffenet": ALEXNET,
    "flickr_style": CAFFENET_BODY + 4097 * 20,
    "rcnn_ilsvrc13": CAFFENET_BODY + 4097 * 201,
    "vgg-16": 138_357_544,
    "vgg-19": 143_667_240,
    "googlenet": 13_378_280,
    "inception-v3": 23_834_568,
    "resnet-18": RESNET_18 + 64 * 64 + 2 * 64,  # the public weights have that convolution
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032 + 64,  # the public weights give conv1 a bias
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "densenet-121": 7_978_856,
    "squeezenet-1.0": 1_248_424,
    "squeezenet-1.1": 1_235_496,
    "mobilenet-v1": 4_231_976,
    "mobilenet-v2": 3_504_872 + 32 * 32 + 2 * 32,  # the public weights widen in their first block too, from 32 to 32
    # VGG-16 with fc8 as three scores of 21 classes
    "fcn-8s": 138_357_544 - 4097 * 1000 + 21 * (4097 + 513 + 257),
    "ssd-300": 26_285_486,  # as counted for other implementations of the paper
    # Four convolutions with Scale; of two maps, 4 boxes a place with 4 locations and 4 classes each
    "shapes_ssd": 9 * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 64) + 2 * (16 + 32 + 64 + 64) + 2 * 2 * 16 * (64 * 9 + 1),
    "unet-2d": 31_030_593 + 64 + 1,  # as counted for one output; here are two
    # The paper's 19,069,955 count biases, not BatchNorm. Here Scale's beta is that bias, and gamma comes on top.
    "unet-3d": 19_069_955 + 2 * (64 + 128 + 256) + 32 + 64 + 128 + 256 + 64 + 128 + 256 + 512,
    "c3d": 77_995_776 + 4097 * 487,  # the paper's 78.4 million are those of 101 classes
    # Embed, two LSTMs (four gates that read input, output and a bias), scores
    "char_lstm": 128 * 128 + 4 * 512 * (128 + 512 + 1) + 4 * 512 * (512 + 512 + 1) + 128 * 513,
    # Embed and scores; of three blocks four products of attention, two of four times the width, two norms; a norm
    "char_gpt": 2 * 256 * 96 + 3 * (12 * 96 * 96 + 4 * 96) + 2 * 96,
    # Tables of tokens and positions; blocks of four and twice four products of the width, with biases, and two norms
    "gpt2": (50257 + 1024) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768,
    "llama-1.3b": 1_345_423_360,  # as counted for the public weights of this size
    "llama-7b": 6_738_415_616,  # as counted for the public weights
    "vit-b-16": 86_567_656,  # as counted for torchvision's and timm's
    "vit-l-16": 304_326_632,
    "dcgan/generator": 3_576_704,
    "dcgan/discriminator": 2_765_568,
}
DEPLOYED = {"googlenet": 6_998_552, "rcnn_ilsvrc13": CAFFENET_BODY + 4097 * 200}
MILLIONS = {"cifar10_resnet-20": 0.27, "cifar10_resnet-56": 0.85, "cifar10_resnet-1001": 10.2}  # the papers', no Scale
FOR_USE = {"dcgan": "generator"}  # the half of the two training nets that a deploy net is
ELSEWHERE = {"rcnn_ilsvrc13": {"fc-rcnn"}}  # made by support vector machines, not by the training net
OUTPUTS = {
    "digits": {"prob": (1, 10)},
    "lenet": {"prob": (64, 10)},
    "mnist_autoencoder": {"decode1neuron": (1, 784)},
    "mnist_siamese": {"feat": (1, 2)},
    **{f"cifar10_{kind}": {"prob": (1, 10)} for kind in ("quick", "full", "resnet-20", "resnet-56", "resnet-1001")},
    **{folder: {"prob": (10, 1000)} for folder in ("alexnet", "caffenet", "vgg-16", "vgg-19", "googlenet")},
    "flickr_style": {"prob": (10, 20)},
    "rcnn_ilsvrc13": {"fc-rcnn": (10, 200)},
    **{f"resnet-{depth}": {"prob": (1, 1000)} for depth in (18, 34, 50, 101, 152)},
    "inception-v3": {"prob": (1, 1000)},
    **{
        folder: {"prob": (1, 1000, 1, 1)}
        for folder in ("squeezenet-1.0", "squeezenet-1.1", "mobilenet-v1", "mobilenet-v2", "densenet-121")
    },
    "fcn-8s": {"score": (1, 21, 500, 500)},
    **{folder: {"detection_out": (1, 1, 1, 7)} for folder in ("ssd-300", "shapes_ssd")},  # before the first forward
    "unet-2d": {"prob": (1, 2, 388, 388)},
    "unet-3d": {"prob": (1, 3, 192, 192, 192)},
    "c3d": {"prob": (1, 487)},
    "char_lstm": {"prob": (1, 1, 128)},
    "char_gpt": {"prob": (1, 128, 256)},
    "gpt2": {"scores": (1, 1024, 50257)},
    **{folder: {"scores": (1, 2048, 32000)} for folder in ("llama-1.3b", "llama-7b")},
    **{folder: {"prob": (1, 1000)} for folder in ("vit-b-16", "vit-l-16")},
    "dcgan": {"image": (1, 3, 64, 64)},
}


def _of(table, model):
    return table.get(f"{model.folder}/{model.file}", table.get(model.folder))


@pytest.mark.parametrize("name", ALL)
def test_learned_values(name):
    net, model = full_size(name), ALL[name]
    if model.folder in MILLIONS:
        millions = MILLIONS[model.folder]
        assert round(learned(net, but="Scale") / 1e6, 1 if millions > 1 else 2) == millions
    else:
        assert learned(net) == _of(LEARNED, model)


@pytest.mark.parametrize("folder", OUTPUTS)
def test_deploy_nets(folder):
    net, model = deployed(folder), ALL.get(f"{folder}/train_val") or ALL[f"{folder}/generator"]
    assert {name: shape_of(net, name) for name in net.outputs} == OUTPUTS[folder]
    if folder not in MILLIONS:
        assert learned(net) == (DEPLOYED.get(folder) or _of(LEARNED, model))
    assert set(net.inputs) == set(model.data) - {"label", "target"} or folder in ("mnist_siamese", "char_lstm")


@pytest.mark.parametrize("folder", OUTPUTS)
def test_trained_weights_fit_the_net_for_use(folder):
    """Every array of the deploy net is in the training net, in its shape."""
    used, trained = deployed(folder).params, full_size(f"{folder}/{FOR_USE.get(folder, 'train_val')}").params
    shapes = {name: [b.shape for b in blobs] for name, blobs in used.items()}
    assert set(shapes) - set(trained) == ELSEWHERE.get(folder, set())
    for name in shapes.keys() & trained.keys():
        assert shapes[name] == [b.shape for b in trained[name]], name


def test_every_deploy_net_is_known():
    assert {p.parent.name for p in MODELS.glob("*/deploy.prototxt")} == set(OUTPUTS)


@pytest.mark.parametrize(
    "folder", ["alexnet", "vgg-16", "vgg-19", "googlenet", "resnet-50", "resnet-152", "unet-3d", "gpt2", "vit-b-16"]
)
def test_nets_on_random_data_are_the_same_nets(folder):
    random, real = deployed(folder, "train_dummy"), full_size(f"{folder}/train_val")
    assert learned(random) == learned(real)
    assert random.outputs == [name for name in real.outputs if not name.startswith("accuracy")]


def test_googlenet_counts_its_losses_as_published():
    weights = {v.name: v.loss_weight for v in full_size("googlenet/train_val").graph.values if v.loss_weight}
    assert weights == pytest.approx({"loss1/loss1": 0.3, "loss2/loss1": 0.3, "loss3/loss3": 1.0})


def test_googlenet_modules_join_as_many_channels_as_published():
    net = deployed("googlenet")
    joined = {v.name.removesuffix("/output"): v.shape[1:] for v in net.graph.values if v.name.endswith("/output")}
    assert {name.removeprefix("inception_"): shape for name, shape in joined.items()} == {
        "3a": (256, 28, 28),
        "3b": (480, 28, 28),
        "4a": (512, 14, 14),
        "4b": (512, 14, 14),
        "4c": (512, 14, 14),
        "4d": (528, 14, 14),
        "4e": (832, 14, 14),
        "5a": (832, 7, 7),
        "5b": (1024, 7, 7),
    }


@pytest.mark.parametrize(
    "name, blob, shape",
    [
        ("inception-v3/train_val", "inception_a3_output", (32, 288, 35, 35)),
        ("inception-v3/train_val", "inception_b4_concat", (32, 768, 17, 17)),
        ("inception-v3/train_val", "inception_c2_concat", (32, 2048, 8, 8)),
        ("densenet-121/train_val", "concat_5_16", (32, 1024, 7, 7)),
        ("mobilenet-v1/train_val", "conv6/sep", (64, 1024, 7, 7)),
        ("squeezenet-1.1/train_val", "fire9/concat", (32, 512, 14, 14)),
        ("fcn-8s/train_val", "fuse_pool3", (1, 21, 70, 70)),
        ("unet-2d/train_val", "d4c", (1, 1024, 28, 28)),
        ("unet-2d/train_val", "d0cc", (1, 64, 392, 392)),
        ("unet-3d/train_val", "conv_d3b", (1, 512, 24, 24, 24)),
        ("c3d/train_val", "pool5", (30, 512, 1, 4, 4)),
    ],
)
def test_shapes_on_the_way_are_those_of_the_papers(name, blob, shape):
    assert shape_of(full_size(name), blob) == shape
