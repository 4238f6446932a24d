"""Export the Caffe models of OpenCV's lists to ONNX, and measure onnxruntime and OpenCV's own importer beside the net.

python tools/bench/leaving_caffe.py FOLDER              update the results in docs/leaving_caffe.json
python tools/bench/leaving_caffe.py FOLDER googlenet    those of some models only

FOLDER holds NAME.prototxt for each model of that file, and NAME.caffemodel where the weights are to be had; without
them every parameter gets random numbers of a fixed seed. This needs an OpenCV 4, which reads Caffe's files; OpenCV 5
does not, but with --opencv5 it reads the models that were made. Then write docs/leaving_caffe.md:
python tools/gen_leaving_caffe.py
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
from google.protobuf import text_format

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pycaffe_lms as caffe  # noqa: E402
from pycaffe_lms.errors import CaffeError  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.onnx_export.trial import random_inputs  # noqa: E402
from pycaffe_lms.proto import caffe_pb2  # noqa: E402

RESULTS = ROOT / "docs" / "leaving_caffe.json"
SEED = 7
VERSIONS: dict[str, str] = {}


def fill(net: caffe.Net) -> None:
    """Fill parameters with random numbers that keep the values of a deep net in range."""
    rng = np.random.default_rng(SEED)
    for node in net.graph.nodes:
        kind, blobs = node.layer.param.type, node.layer.blobs
        for i, blob in enumerate(blobs):
            if kind == "BatchNorm" and i < 3:
                blob.data = (rng.normal(size=blob.shape) * 0.1, rng.uniform(0.8, 1.2, blob.shape), np.ones(blob.shape))[
                    i
                ]
            elif kind in ("Scale", "Normalize", "PReLU") and i == 0:
                middle = {"Scale": 1, "Normalize": 10, "PReLU": 0.25}[kind]
                blob.data = middle * rng.uniform(0.8, 1.2, blob.shape)
            elif len(blob.shape) > 1:
                inputs = blob.shape[0] if kind == "Deconvolution" else np.prod(blob.shape[1:])
                blob.data = rng.normal(size=blob.shape) * np.sqrt(2 / inputs)
            else:
                blob.data = rng.normal(size=blob.shape) * 0.1
    convolutions = [node for node in net.graph.nodes if node.layer.param.type == "Convolution"]
    heads = [node for node in convolutions if "mbox" in node.name or node.name.startswith("rpn_")]
    if not heads:
        return
    for name, values in random_inputs(net, SEED).items():
        net.blobs[name].data = values
    net.forward_range()
    for node in heads:  # boxes of moderate sizes, scores that differ
        now = net.blobs[net.graph.values[node.tops[0]].name].data.std()
        node.layer.blobs[0].data = node.layer.blobs[0].read_data() * ((0.5 if "loc" in node.name else 1.5) / now)


READ = """
import sys, cv2, numpy as np
net = cv2.dnn.readNetFromONNX(sys.argv[1])
for name, values in np.load(sys.argv[2]).items():
    net.setInput(values, name)
names = net.getUnconnectedOutLayersNames()
np.savez(sys.argv[3], version=cv2.__version__, **dict(zip(names, net.forward(names))))
"""


def of_opencv_5(python: str, model: Path, inputs: dict, folder: Path) -> tuple[dict, str]:
    """The model's outputs as OpenCV 5 gives them in another Python, and its version. Raises CalledProcessError."""
    given, made = folder / "given.npz", folder / "made.npz"
    np.savez(given, **inputs)
    subprocess.run([python, "-c", READ, model, given, made], check=True, capture_output=True, text=True)
    with np.load(made) as file:
        found = dict(file)
    return found, str(found.pop("version"))


def of_opencv(net: caffe.Net, prototxt: Path, weights: Path, inputs: dict) -> dict:
    """The net's outputs as OpenCV's importer of Caffe gives them."""
    theirs = cv2.dnn.readNetFromCaffe(str(prototxt), str(weights))
    for name, values in inputs.items():
        theirs.setInput(values, name)
    if len(net.outputs) == 1:
        return {net.outputs[0]: theirs.forward()}
    nodes = net.graph.nodes
    makers = {name: nodes[net.graph.values[net.graph.last[name]].producer].name for name in net.outputs}
    return dict(zip(makers, theirs.forward(list(makers.values())), strict=True))


def qr_code(shape: tuple[int, ...]) -> np.ndarray:
    """A picture of a QR code on grey, as WeChat's nets see it: (1, 1, height, width), 0 to 1."""
    code = cv2.QRCodeEncoder.create().encode("pycaffe-lms")
    height, width = shape[2:]
    picture = np.full((height, width), 0.6, np.float32)
    side = min(height, width) // 2
    code = cv2.resize(code, (side, side), interpolation=cv2.INTER_NEAREST).astype(np.float32) / 255
    picture[height // 4 : height // 4 + side, width // 4 : width // 4 + side] = code
    return picture[None, None]


def rows(detections: np.ndarray) -> np.ndarray:
    """Detections (1, 1, K, 7) as rows; OpenCV fills up with rows of zeros."""
    found = detections.reshape(-1, 7)
    return found[(found != 0).any(axis=1)]


def apart(ours: np.ndarray, theirs: np.ndarray, detections: bool) -> list:
    """The largest difference, absolute and relative to the largest number; or a word why there is none."""
    if detections:
        ours, theirs = rows(ours), rows(theirs)
    if detections and ours.shape != theirs.shape:
        return [f"{len(theirs)} rows instead of {len(ours)}", None]
    if detections:  # rows whose scores round differently may change places
        pairs = np.abs(ours[:, None] - theirs).max(axis=2)
        most = float(max(pairs.min(axis=0).max(), pairs.min(axis=1).max()))
        return [most, most / float(np.abs(ours).max())]
    if ours.size != theirs.size:
        return [f"shape {theirs.shape} instead of {ours.shape}", None]
    most = float(np.abs(ours.reshape(-1) - theirs.reshape(-1)).max(initial=0))
    return [most, most / float(np.abs(ours).max(initial=1e-30))]


def parts(prototxt: Path, model: dict, folder: Path) -> list[Path]:
    """Write the files to export: the net itself, with Input layers for its data layers and model["size"], or both parts
    of one that is cut at the layer model["cut"], which ONNX cannot hold. A last Softmax, which would hide differences
    after random weights, is left off then."""
    message = read_net(prototxt).message
    for layer in message.layer:
        if layer.type == "MemoryData":
            p = layer.memory_data_param
            layer.type = "Input"
            layer.ClearField("memory_data_param")
            del layer.top[1:]
            layer.input_param.shape.add(dim=[p.batch_size, p.channels, p.height, p.width])
    if "size" in model:
        message.layer[0].input_param.shape[0].dim[2:] = model["size"]
    for layer in [layer for layer in message.layer if layer.type == "Silence"]:
        message.layer.remove(layer)  # what it reads becomes an output
    if not prototxt.with_suffix(".caffemodel").is_file():
        read = {bottom for layer in message.layer for bottom in layer.bottom}
        ends = [layer for layer in message.layer if layer.type == "Softmax" and not read & set(layer.top)]
        for layer in ends:
            message.layer.remove(layer)
    cut = [i for i, layer in enumerate(message.layer) if layer.name == model.get("cut")]
    if not cut:
        (folder / prototxt.name).write_text(text_format.MessageToString(message))
        return [folder / prototxt.name]
    first, second = caffe_pb2.NetParameter(name=message.name), caffe_pb2.NetParameter(name=message.name)
    first.layer.extend(message.layer[: cut[0]])
    net = caffe.Net(first, caffe.TEST)
    made = {top for layer in message.layer[cut[0] + 1 :] for top in layer.top}
    shapes = {name: list(blob.shape) for name, blob in net.blobs.items()}
    shapes |= {top: [100, 5] for top in message.layer[cut[0]].top}
    wanted = dict.fromkeys(b for layer in message.layer[cut[0] + 1 :] for b in layer.bottom if b not in made)
    for blob in wanted:
        second.layer.add(name=blob, type="Input", top=[blob]).input_param.shape.add(dim=shapes[blob])
    second.layer.extend(message.layer[cut[0] + 1 :])
    read = {bottom for layer in first.layer for bottom in layer.bottom}
    for layer in first.layer:
        if layer.type == "Input":  # im_info is for the proposals only
            kept = [i for i, top in enumerate(layer.top) if top in read]
            shapes_kept = [layer.input_param.shape[i if len(layer.input_param.shape) > 1 else 0] for i in kept]
            tops = [layer.top[i] for i in kept]
            layer.top[:] = tops
            layer.ClearField("input_param")
            layer.input_param.shape.extend(shapes_kept)
    for layer in [layer for layer in first.layer if layer.type == "Input" and not layer.top]:
        first.layer.remove(layer)
    files = [folder / f"{prototxt.stem}_{i}.prototxt" for i in (1, 2)]
    for file, part in zip(files, (first, second), strict=True):
        file.write_text(text_format.MessageToString(part))
    return files


def with_opencv_5(python: str, path: Path, inputs: dict, ours: dict, last: dict, folder: Path) -> dict:
    """How far the model is from the net in OpenCV 5, by output."""
    try:
        theirs, version = of_opencv_5(python, path, inputs, folder)
    except subprocess.CalledProcessError as error:
        operator = re.search(r"Node \[(\w+)@", error.stderr)
        said = operator[1] if operator else error.stderr.strip().splitlines()[-1][:120]
        return {"": [f"not read: {said}", None]}
    found = {n: apart(ours[n], theirs[n], last[n] == "DetectionOutput") for n in ours if n in theirs}
    VERSIONS["opencv5"] = version
    return found if len(found) == len(ours) else {"": ["other outputs", None]}


def measure(prototxt: Path, weights: Path, opset: int, python5: str) -> dict:
    """Build, export, check; compare with OpenCV."""
    result: dict = {"weights": "real" if weights.is_file() else "random"}
    net = caffe.Net(str(prototxt), caffe.TEST)
    with tempfile.TemporaryDirectory() as folder:
        if weights.is_file():
            net.copy_from(str(weights))
        else:
            fill(net)
            weights = Path(folder) / "net.caffemodel"
            net.save(str(weights))
        inputs = random_inputs(net, SEED)
        if result["weights"] == "real" and [values.shape[1] for values in inputs.values()] == [1]:
            inputs = {name: qr_code(values.shape) for name, values in inputs.items()}
        for name, values in inputs.items():
            net.blobs[name].data = values
        net.forward_range()
        ours = {name: net.blobs[name].data.copy() for name in net.outputs}
        result["inputs"] = {name: list(values.shape) for name, values in inputs.items()}
        made = {node.name: node.layer.param.type for node in net.graph.nodes}
        last = {n: made[net.graph.nodes[net.graph.values[net.graph.last[n]].producer].name] for n in net.outputs}
        try:
            theirs = of_opencv(net, prototxt, weights, inputs)
            result["opencv"] = {n: apart(ours[n], theirs[n], last[n] == "DetectionOutput") for n in net.outputs}
        except cv2.error as error:
            result["opencv"] = {"": [str(error).strip().splitlines()[-1][:200], None]}
        path = Path(folder) / "net.onnx"
        try:
            caffe.export_onnx(net, path, opset=opset)
            found = caffe.check_onnx(net, path, {"same": inputs}, random=False)
            if python5:
                result["opencv5"] = with_opencv_5(python5, path, inputs, ours, last, Path(folder))
            result["onnx"] = {d.output: [d.absolute, d.relative] for d in found}
        except CaffeError as error:
            result["refused"] = error.message.replace(str(prototxt), prototxt.name)
        if "refused" not in result:
            try:
                caffe.export_onnx(net, path, opset=opset, dynamic_batch=True)
            except CaffeError as error:
                result["fixed_batch"] = error.message.splitlines()[0].replace(str(prototxt), prototxt.name)
    net.close()
    return result


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path)
    p.add_argument("models", nargs="*")
    p.add_argument("--opset", type=int, default=17)
    p.add_argument(
        "--opencv5", default="", metavar="PYTHON", help="a Python that has an OpenCV 5, which reads the models too"
    )
    args = p.parse_args()
    known = json.loads(RESULTS.read_text())
    known["versions"] = {
        "onnxruntime": onnxruntime.__version__,
        "opencv": cv2.__version__,
        "opset": args.opset,
        "seed": SEED,
    }
    for name, model in known["models"].items():
        prototxt = args.folder / f"{name}.prototxt"
        if (args.models and name not in args.models) or not prototxt.is_file():
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                files = parts(prototxt, model, Path(folder))
                model["results"] = [
                    measure(file, prototxt.with_suffix(".caffemodel"), args.opset, args.opencv5) for file in files
                ]
        except CaffeError as error:
            model["results"] = [{"refused": error.message.splitlines()[0].replace(str(prototxt), prototxt.name)}]
        for result in model["results"]:
            print(name, json.dumps(result), flush=True)
        known["versions"] |= VERSIONS
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
