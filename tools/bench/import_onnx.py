"""Export torchvision's nets to ONNX, and measure how far they are from onnxruntime once imported.

    python tools/bench/import_onnx.py export FOLDER        # needs torch, torchvision and onnxscript
    python tools/bench/import_onnx.py table FOLDER         # needs onnx and onnxruntime

`table` prints the rows of the table in docs/import_onnx.md. Weights are random, with BatchNorm's statistics away from 0
and 1; `FOLDER` gets 4 GB of models.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

IMAGE, VIDEO = (1, 3, 224, 224), (1, 3, 8, 64, 64)
CLASSIFIERS = """resnet18 resnext50_32x4d vgg11_bn alexnet squeezenet1_1 mobilenet_v2 mobilenet_v3_small
mobilenet_v3_large densenet121 googlenet shufflenet_v2_x1_0 mnasnet1_0 efficientnet_b0 regnet_y_400mf convnext_tiny
vit_b_16 swin_t"""
NETS: dict[str, tuple[int, ...]] = dict.fromkeys(CLASSIFIERS.split(), IMAGE)
NETS |= {"inception_v3": (1, 3, 299, 299)}
SEGMENTATION = ("fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
NETS |= dict.fromkeys(SEGMENTATION, (1, 3, 97, 97))
NETS |= dict.fromkeys(("r3d_18", "mc3_18", "r2plus1d_18"), VIDEO) | {"s3d": (1, 3, 16, 224, 224)}


def export(folder: Path) -> None:
    """Write NAME.script.onnx (the older exporter) and NAME.new.onnx (the newer one) of every net."""
    torch: Any = importlib.import_module("torch")
    models: Any = importlib.import_module("torchvision").models

    class Out(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, net: Any):
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            y = self.net(x)
            return y["out"] if isinstance(y, dict) else y

    for name, shape in NETS.items():
        torch.manual_seed(1)
        options: dict[str, Any] = {"weights_backbone": None} if name in SEGMENTATION else {}
        if name in ("googlenet", "inception_v3"):
            options["init_weights"] = False
        home = models.segmentation if name in SEGMENTATION else models.video if len(shape) == 5 else models
        net = Out(getattr(home, name)(weights=None, **options).eval()) if name in SEGMENTATION else None
        net = net or getattr(home, name)(weights=None, **options).eval()
        for module in net.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.8, 1.2)
        for weight in net.parameters():
            if not weight.any():  # vit_b_16's last layer, which would make all outputs 0
                torch.nn.init.normal_(weight, 0, 0.02)
        x = (torch.randn(shape),)
        keep = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False, "opset_version": 17}
        for kind, how in (("script", {"dynamo": False, **keep}), ("new", {"dynamo": True, "external_data": False})):
            try:
                torch.onnx.export(net, x, str(folder / f"{name}.{kind}.onnx"), **how)
            except Exception as error:  # of the exporter: the table says that there is no model
                print(f"{name} ({kind}) is not exported: {str(error).splitlines()[0]}")


def table(folder: Path) -> None:
    """Print a row for each net."""
    caffe: Any = importlib.import_module("pycaffe_lms")
    for name, shape in NETS.items():
        row = [name, " x ".join(map(str, shape))]
        for kind in ("script", "new"):
            model = folder / f"{name}.{kind}.onnx"
            row.append(_difference(caffe, model) if model.exists() else "not exported")
        print(f"| {' | '.join(row)} |", flush=True)


def _difference(caffe: Any, model: Path) -> str:
    with TemporaryDirectory() as place:
        files = [str(Path(place, f"net.{end}")) for end in ("prototxt", "caffemodel")]
        try:
            caffe.import_onnx(model, *files)
        except RuntimeError as error:
            return "refused: " + str(error).splitlines()[1].strip()
        net = caffe.Net(files[0], caffe.TEST, weights=files[1])
        return f"{max(d.relative for d in caffe.check_onnx(net, model)):.1e}"


def main() -> None:
    """Run one of the two."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("export", "table"))
    p.add_argument("folder", type=Path)
    args = p.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    (export if args.what == "export" else table)(args.folder)


if __name__ == "__main__":
    main()
