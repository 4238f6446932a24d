"""Write pycaffe_lms/formats/prototxt/forks.tsv: which fork of Caffe each field, enum value and layer type belongs to.

    python tools/gen_forks.py FOLDER

FOLDER holds a clone of each repository of FORKS as OWNER+NAME (or OWNER+NAME/repo). Only names are taken: fields and
enum values of messages that proto/caffe.proto has, and names of registered layers, that BVLC Caffe does not have.
Needs `pip install grpcio-tools==1.62.3`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gen_proto import ROOT, SOURCE, protoc
from google.protobuf.descriptor_pb2 import FileDescriptorSet

TABLE = ROOT / "pycaffe_lms" / "formats" / "prototxt" / "forks.tsv"
USUAL = "src/caffe/proto/caffe.proto"
# (name, repository, branch, the schema): the origin of a field before forks that took it over.
FORKS = (
    ("BVLC Caffe", "BVLC/caffe", "HEAD", USUAL),
    ("SSD's Caffe", "weiliu89/caffe", "ssd", USUAL),
    ("NVIDIA Caffe", "NVIDIA/caffe", "HEAD", USUAL),
    ("Intel Caffe", "intel/caffe", "HEAD", USUAL),
    ("Fast R-CNN's Caffe", "rbgirshick/caffe-fast-rcnn", "faster-rcnn", USUAL),
    ("R-FCN's Caffe", "daijifeng001/caffe-rfcn", "HEAD", USUAL),
    ("SegNet's Caffe", "alexgkendall/caffe-segnet", "HEAD", USUAL),
    ("ENet's Caffe", "TimoSaemann/caffe-enet", "HEAD", USUAL),
    ("DeepLab's Caffe", "xmyqsh/deeplab-v2", "HEAD", USUAL),
    ("PSPNet's Caffe", "hszhao/PSPNet", "HEAD", USUAL),
    ("C3D", "facebook/C3D", "HEAD", "C3D-v1.0/" + USUAL),
    ("C3D 1.1", "facebook/C3D", "HEAD", "C3D-v1.1/" + USUAL),
    ("video-caffe", "chuckcho/video-caffe", "HEAD", USUAL),
    ("yjxiong's Caffe", "yjxiong/caffe", "HEAD", USUAL),
    ("Ristretto", "pmgysel/caffe", "HEAD", USUAL),
    ("Vitis AI", "Xilinx/Vitis-AI", "HEAD", "src/vai_quantizer/xnnc4xir/xnnc/proto/caffe_pb2/caffe.proto"),
    ("FlowNet 2", "lmb-freiburg/flownet2", "HEAD", USUAL),
    ("caffe-face", "ydwen/caffe-face", "HEAD", USUAL),
    ("CTPN's Caffe", "tianzhi0549/CTPN", "HEAD", "caffe/" + USUAL),
    ("MS-CNN", "zhaoweicai/mscnn", "HEAD", USUAL),
    ("Cascade R-CNN", "zhaoweicai/cascade-rcnn", "HEAD", USUAL),
    ("RefineDet", "sfzhang15/RefineDet", "HEAD", USUAL),
    ("MobileNet-YOLO", "eric612/MobileNet-YOLO", "HEAD", USUAL),
    ("Synopsys Caffe", "foss-for-synopsys-dwc-arc-processors/synopsys-caffe", "HEAD", USUAL),
    ("CRF-RNN", "torrvision/caffe", "HEAD", USUAL),
    ("MNC's Caffe", "daijifeng001/caffe-mnc", "HEAD", USUAL),
    ("DeconvNet's Caffe", "HyeonwooNoh/caffe", "HEAD", USUAL),
    ("HED", "s9xie/hed", "HEAD", USUAL),
    ("RCF", "yun-liu/rcf", "HEAD", USUAL),
    ("caffe-windows (NormFace)", "happynear/caffe-windows", "HEAD", USUAL),
    ("VPGNet", "SeokjuLee/VPGNet", "HEAD", "caffe/" + USUAL),
    ("HashNet", "thuml/HashNet", "HEAD", "caffe/" + USUAL),
    ("Xlearn", "thuml/Xlearn", "HEAD", "caffe/" + USUAL),
    ("SCNN (structured sparsity)", "wenwei202/caffe", "HEAD", USUAL),
    ("Dynamic Network Surgery", "yiwenguo/Dynamic-Network-Surgery", "HEAD", USUAL),
    ("caffe_ocr", "senlinuc/caffe_ocr", "HEAD", USUAL),
    ("caffe-yolo", "yeahkun/caffe-yolo", "HEAD", USUAL),
    ("caffe-yolo9000", "choasup/caffe-yolo9000", "HEAD", USUAL),
    ("Huawei's Caffe", "jizhuoran/caffe-huawei-atlas-convertor", "HEAD", "caffe/" + USUAL),
)
MOST = 3  # forks that are named for one name
_TYPE = re.compile(r"REGISTER_LAYER_(?:CLASS|CREATOR)\((\w+)")


def git(folder: Path, repository: str, *arguments: str) -> str:
    """Run git in the clone of a repository and return what it prints; nothing where `git grep` finds nothing."""
    place = folder / repository.replace("/", "+")
    for inner in (place / "repo" / ".git", place / "repo", place / ".git", place):
        if (inner / "objects").exists():
            done = subprocess.run(["git", f"--git-dir={inner}", *arguments], capture_output=True, check=False)
            if done.returncode > 1:
                raise SystemExit(f"{repository}: {done.stderr.decode('utf-8', 'replace').strip()}")
            return done.stdout.decode("utf-8", "replace")
    raise SystemExit(f"no clone of {repository} in {folder}")


def schema(text: str) -> Iterator[tuple[str, str]]:
    """Yield (message, field) and (message.enum, value) of a schema."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "fork.proto").write_text(text, encoding="utf-8")
        protoc(f"-I{folder}", f"--descriptor_set_out={folder}/set", "fork.proto")
        (file,) = FileDescriptorSet.FromString(Path(folder, "set").read_bytes()).file
    for message in file.message_type:
        name = message.name
        if name == "LayerParameter" and any(enum.name == "LayerType" for enum in message.enum_type):
            name = "V1LayerParameter"  # as it was called before there were two
        yield from ((name, field.name) for field in message.field)
        for enum in message.enum_type:
            yield from ((f"{name}.{enum.name}", value.name) for value in enum.value)


def main() -> None:
    """Write the table."""
    folder = Path(sys.argv[1])
    ours = {where.partition(".")[0] for where, _ in schema(SOURCE.read_text(encoding="utf-8"))}
    found: dict[tuple[str, str], list[str]] = {}
    for name, repository, branch, path in FORKS:
        types = {
            match[1] for match in _TYPE.finditer(git(folder, repository, "grep", "-h", "REGISTER_LAYER_C", branch))
        }
        names = set(schema(git(folder, repository, "show", f"{branch}:{path}")))
        if "CONVOLUTION" in types:  # an old fork, which registers values of LayerType
            types.clear()
        names = {(where, what) for where, what in names if where.partition(".")[0] in ours}
        for entry in sorted(names | {("type", one) for one in types - {"type", "TYPE"}}):
            found.setdefault(entry, []).append(name)
    lines: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (where, what), forks in sorted(found.items()):
        if forks[0] != FORKS[0][0]:
            lines.setdefault((where, tuple(forks[:MOST])), []).append(what)
    text = "".join(f"{where}\t{', '.join(forks)}\t{' '.join(names)}\n" for (where, forks), names in lines.items())
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
