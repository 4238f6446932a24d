"""Write pycaffe_lms/data/sets/zoo.tar.xz: the files of models/ and an index of them, as the package ships them.

python tools/gen_zoo.py            write it, if its content is not that of models/
python tools/gen_zoo.py --check    write nothing; exit 1 if it is not current

The index has names, sizes and purposes from models/README.md and the READMEs, and shapes of the data from tools/zoo.
"""

import argparse
import io
import json
import re
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo import all_models  # noqa: E402

from pycaffe_lms.data.sets.zoo import ARCHIVE, INDEX, read_archive  # noqa: E402

MODELS = ROOT / "models"
ENDINGS = {".prototxt", ".md", ".py"}  # a checkout that trained has snapshots beside them
ROW = re.compile(r"\| \[(?P<name>[^\]]+)\]\(.*?\) \| (?P<cells>.*) \|")
PURPOSE = re.compile(r"# [\w.-]+: (.+)")


def index() -> list[dict]:
    """What is told of each model, in the order of models/README.md; cells of its table as they stand there."""
    table = {}
    for line in (MODELS / "README.md").read_text().splitlines():
        if row := ROW.fullmatch(line):
            folder, _, file = row["name"].partition(", ")
            table[folder, file or "train_val"] = row["cells"].split(" | ")
    shapes = {(model.folder, model.file): model.data for model in all_models()}
    if shapes.keys() != table.keys():
        sys.exit(f"models/README.md and tools/zoo list other models: {sorted(shapes.keys() ^ table.keys())}")
    found: dict[str, dict] = {}
    for (folder, file), (parameters, operations, batch, memory, _, least) in table.items():
        heading = (MODELS / folder / "README.md").read_text().partition("\n")[0]
        purpose = PURPOSE.fullmatch(heading)
        if purpose is None:
            sys.exit(f"models/{folder}/README.md does not begin with `# NAME: what for`")
        model = found.setdefault(folder, {"name": folder, "purpose": purpose[1], "nets": []})
        net = {"file": file, "parameters": int(parameters.replace(",", "")), "operations": operations}
        net |= {"batch": int(batch), "memory": memory, "least": least, "shapes": shapes[folder, file]}
        model["nets"].append(net)
    return list(found.values())


def content() -> dict[str, bytes]:
    """{path in the archive: content}."""
    paths = sorted(p for p in MODELS.glob("*/*") if p.suffix in ENDINGS)
    files = {p.relative_to(MODELS).as_posix(): p.read_bytes() for p in paths}
    return {INDEX: (json.dumps(index(), indent=1) + "\n").encode()} | files


def packed(files: dict[str, bytes]) -> bytes:
    """The archive: the same bytes for the same files, whoever writes it."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)  # no times, no owners
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write the archive of models that the package ships.")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check = parser.parse_args(argv).check
    files = content()
    if ARCHIVE.is_file() and read_archive(ARCHIVE) == files:  # content, for releases of liblzma may pack otherwise
        return 0
    if not check:
        ARCHIVE.write_bytes(packed(files))
    print(f"{'not current' if check else 'written'}: {ARCHIVE.name}")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
