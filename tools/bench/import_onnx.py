"""Export torchvision's nets to ONNX, and measure how far they are from onnxruntime once imported.

    python tools/bench/import_onnx.py export FOLDER        # needs torch, torchvision and onnxscript
    python tools/bench/import_onnx.py measure FOLDER       # needs onnx and onnxruntime

`measure` writes docs/import_onnx.json; tools/gen_import_docs.py makes the table of docs/import_onnx.md from it. Weights
are random, with BatchNorm's statistics away from 0 and 1; `FOLDER` gets 4 GB of models.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "import_onnx.json"
VERSIONS = "versions.json"  # in FOLDER: of the packages that exported the models
KINDS = {"older": "script", "newer": "new"}  # the exporters, and how their files are called
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

    (folder / VERSIONS).write_text(json.dumps({name: version(name) for name in ("torch", "torchvision")}))
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


def measure(folder: Path, nets: Iterable[str] = NETS) -> None:
    """Write what was measured to docs/import_onnx.json, net by net; later ones replace earlier ones of their name.

    A number is the largest difference divided by the largest number of the output; words say why there is none.
    """
    caffe: Any = importlib.import_module("pycaffe_lms")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"nets": {}}
    known["versions"] = json.loads((folder / VERSIONS).read_text())
    known["versions"] |= {name: version(name) for name in ("onnx", "onnxruntime")}
    for name in nets:
        known["nets"][name] = found = {"shape": list(NETS[name])}
        for kind, short in KINDS.items():
            model = folder / f"{name}.{short}.onnx"
            found[kind] = _difference(caffe, model) if model.exists() else "not exported"
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        print(name, found, flush=True)


def _difference(caffe: Any, model: Path) -> float | str:
    with TemporaryDirectory() as place:
        files = [str(Path(place, f"net.{end}")) for end in ("prototxt", "caffemodel")]
        try:
            caffe.import_onnx(model, *files)
        except RuntimeError as error:
            return "refused: " + str(error).splitlines()[1].strip()
        net = caffe.Net(files[0], caffe.TEST, weights=files[1])
        return float(f"{max(d.relative for d in caffe.check_onnx(net, model)):.3g}")


def main() -> None:
    """Run one of the two."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("export", "measure"))
    p.add_argument("folder", type=Path)
    args = p.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    (export if args.what == "export" else measure)(args.folder)


if __name__ == "__main__":
    main()
