"""Text for the character model: files to learn from, and new text from its weights.

python models/char_lstm/text.py prepare book.txt                      data/text/{train,test}.{h5,txt}, the last 5% test
python models/char_lstm/text.py write weights.caffemodel --start "The " --length 500 --temperature 0.8

Characters beyond ASCII count as "?". Needs h5py to prepare: pip install 'pycaffe-lms[hdf5]'.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import pycaffe_lms as caffe
from pycaffe_lms.data.feed.hdf5_writer import HDF5Writer

HERE = Path(__file__).resolve().parent
STREAMS = 50


def encode(text: str) -> np.ndarray:
    """The numbers (0 to 127) of a text's characters."""
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8)


def rows(text: str, streams: int = STREAMS) -> dict[str, np.ndarray]:
    """cont, input and target, (time, streams) each: the text cut into `streams` pieces that are read side by side.

    cont is 0 where a piece begins, target the character that follows. Raises ValueError for a text that is too short.
    """
    codes = encode(text)
    steps = (len(codes) - 1) // streams
    if steps < 1:
        raise ValueError(f"{len(codes)} characters are too few for {streams} pieces")
    data = codes[: steps * streams].reshape(streams, steps).T
    target = codes[1 : steps * streams + 1].reshape(streams, steps).T
    cont = np.ones(data.shape, np.float32)
    cont[0] = 0
    return {"cont": cont, "input": data.astype(np.float32), "target": target.astype(np.float32)}


def prepare(path: Path, folder: Path) -> None:
    """Write train.h5, test.h5 and the lists that the net's data layers read."""
    text = path.read_text(encoding="utf-8")
    cut = len(text) * 95 // 100
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", text[:cut]), ("test", text[cut:])):
        writer = HDF5Writer(str(folder / f"{name}.h5"))
        writer.append(rows(part))
        writer.close()
        (folder / f"{name}.txt").write_text(f"{folder / name}.h5\n")


def write(net, start: str, length: int, temperature: float, rng) -> str:
    """`start` and `length` characters after it, each drawn by the net's probabilities to the power 1 / temperature."""
    text = start
    for i in range(len(start) + length - 1):
        net.forward(cont=np.full((1, 1), float(i > 0)), input=np.full((1, 1), float(encode(text)[i])))
        if i >= len(start) - 1:
            log = np.log(np.maximum(net.blobs["prob"].data[0, 0].astype(np.float64), 1e-30)) / temperature
            chances = np.exp(log - log.max())
            text += chr(rng.choice(len(chances), p=chances / chances.sum()))
    return text


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="action", required=True)
    p = sub.add_parser("prepare")
    p.add_argument("file", type=Path)
    p.add_argument("--out", type=Path, default=Path("data/text"))
    w = sub.add_parser("write")
    w.add_argument("weights")
    w.add_argument("--start", default="The ")
    w.add_argument("--length", type=int, default=500)
    w.add_argument("--temperature", type=float, default=0.8)
    w.add_argument("--seed", type=int, default=1701)
    args = parser.parse_args(argv)
    if args.action == "prepare":
        prepare(args.file, args.out)
        return
    net = caffe.Net(str(HERE / "deploy.prototxt"), caffe.TEST, weights=args.weights)
    print(write(net, args.start, args.length, args.temperature, np.random.default_rng(args.seed)), file=sys.stdout)


if __name__ == "__main__":
    main()
