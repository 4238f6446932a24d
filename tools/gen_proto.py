"""Make pycaffe_lms/proto/caffe_pb2.py, and its types for checkers (.pyi), from proto/caffe.proto, or check them.

    python tools/gen_proto.py            write both
    python tools/gen_proto.py --check    exit 1 where a file on disk is not what would be written

Needs `pip install grpcio-tools==1.62.3`: the protoc inside (25.1) is the newest whose output asks for no particular
protobuf runtime, so that one generated file serves protobuf 4.25 to 7.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto" / "caffe.proto"
FOLDER = ROOT / "pycaffe_lms" / "proto"
PROTOC = "libprotoc 25.1"
PIP = "pip install grpcio-tools==1.62.3"


def stamp(source: bytes) -> str:
    """The first line of the generated file: which caffe.proto it was made from."""
    return f"# sha256 of proto/caffe.proto: {hashlib.sha256(source).hexdigest()}\n"


def protoc(*arguments: str) -> str:
    """Run protoc and return what it prints. Raises SystemExit with protoc's words, or with the pip line."""
    done = subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], capture_output=True, text=True)
    if done.returncode:
        absent = "No module named" in done.stderr
        raise SystemExit(f"grpc_tools is not installed here: {PIP}" if absent else done.stderr.strip())
    return done.stdout


def generate(source: bytes) -> dict[Path, str]:
    """The files for this caffe.proto, by where they go."""
    version = protoc("--version").strip()
    if version != PROTOC:
        raise SystemExit(f"{version} is not {PROTOC}, whose output every protobuf runtime accepts: {PIP}")
    with tempfile.TemporaryDirectory() as folder:
        # The path below becomes the descriptor's file name, which must not be another package's plain "caffe.proto".
        name = Path("pycaffe_lms", "proto", "caffe.proto")
        (Path(folder) / name).parent.mkdir(parents=True)
        (Path(folder) / name).write_bytes(source)
        protoc(f"-I{folder}", f"--python_out={folder}", f"--pyi_out={folder}", str(Path(folder) / name))
        made = (Path(folder) / name.with_name(f"caffe_pb2{end}") for end in (".py", ".pyi"))
        texts = {FOLDER / path.name: path.read_text(encoding="utf-8") for path in made}
    if any("runtime_version" in text for text in texts.values()):
        raise SystemExit(f"the generated code asks for one protobuf runtime: {PIP}")
    return {path: stamp(source) + text for path, text in texts.items()}


def main(argv: list[str] | None = None) -> int:
    """Write or check the generated files; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the file is out of date")
    check = parser.parse_args(argv).check
    status = 0
    for path, text in generate(SOURCE.read_bytes()).items():
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.relative_to(ROOT)} is out of date: run python tools/gen_proto.py", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
