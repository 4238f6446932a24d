"""Train a DCGAN: the discriminator on real and made pictures, then the generator through the discriminator's gradient.

python models/dcgan/train.py data/celeba/celeba_train_lmdb --steps 20000 [--gpu 0]

The database holds colour pictures of at least 64 x 64; their middle 64 x 64 is used. Weights go beside this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pycaffe_lms as caffe
from pycaffe_lms.data.database.datum import decode_datum
from pycaffe_lms.data.database.open import open_database

HERE = Path(__file__).resolve().parent
SIZE = 64


def pictures(path: str, batch: int):
    """Batches (N, 3, 64, 64) of an LMDB's pictures from -1 to 1, again and again."""
    source = open_database(path, "LMDB")
    while True:
        images = []
        for key, value in (source.next() for _ in range(batch)):
            image, _ = decode_datum(value, source=path, key=key)
            y, x = (image.shape[1] - SIZE) // 2, (image.shape[2] - SIZE) // 2
            images.append(image[:, y : y + SIZE, x : x + SIZE] / 127.5 - 1)
        yield np.array(images, np.float32)


def solvers():
    """The two solvers, generator first."""
    return tuple(caffe.get_solver(HERE / f"{name}_solver.prototxt") for name in ("generator", "discriminator"))


def step(generator, discriminator, real: np.ndarray, rng) -> tuple[float, float]:
    """One update of each; returns the losses of the discriminator and of the generator."""
    g, d = generator.net, discriminator.net
    one, zero = (np.full(d.blobs["real"].shape, value, np.float32) for value in (1, 0))

    d.clear_param_diffs()
    losses = []
    for images, wanted in ((real, one), (g.forward(z=codes(g, rng))["image"], zero)):
        losses.append(float(d.forward(data=images, real=wanted)["loss"]))
        d.backward()
    discriminator.apply_update()

    g.clear_param_diffs()
    made = g.forward(z=codes(g, rng))["image"]
    wanted = float(d.forward(data=made, real=one)["loss"])
    d.backward()  # the discriminator's own gradients are cleared before its next update
    g.backward(image=d.blobs["data"].diff)
    generator.apply_update()
    return sum(losses), wanted


def codes(g, rng) -> np.ndarray:
    """What the generator makes pictures of: numbers from -1 to 1."""
    return rng.uniform(-1, 1, g.blobs["z"].shape).astype(np.float32)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", help="an LMDB of colour pictures")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--seed", type=int, default=1701)
    args = parser.parse_args(argv)
    if args.gpu is not None:
        caffe.set_mode_gpu()
        caffe.set_device(args.gpu)
    caffe.set_random_seed(args.seed)
    generator, discriminator = solvers()
    batches = pictures(args.database, discriminator.net.blobs["data"].shape[0])
    rng = np.random.default_rng(args.seed)
    for i in range(1, args.steps + 1):
        losses = step(generator, discriminator, next(batches), rng)
        if i % 100 == 0 or i == args.steps:
            print(f"step {i}: loss of the discriminator {losses[0]:.4f}, of the generator {losses[1]:.4f}", flush=True)
    generator.net.save(HERE / "generator.caffemodel")
    discriminator.net.save(HERE / "discriminator.caffemodel")


if __name__ == "__main__":
    main()
