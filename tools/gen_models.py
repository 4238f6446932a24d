"""Write the prototxts of models/ from tools/zoo, and what each model takes: models/README.md and a part of its own.

python tools/gen_models.py              write every prototxt
python tools/gen_models.py --figures    the READMEs too; plans every model, which takes a minute
python tools/gen_models.py --check      write nothing; exit 1 and name the files that are not current
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo import all_files, all_models  # noqa: E402
from zoo.table import figure_files  # noqa: E402

MODELS = ROOT / "models"


def stale(files: dict[str, str] | None = None) -> list[str]:
    """Paths under models/ that are missing or differ from `files`: path -> text, what the zoo gives by default."""

    def current(path):
        file = MODELS / path
        return file.read_bytes() if file.is_file() else None

    return [path for path, text in (files or all_files()).items() if current(path) != text.encode()]


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write the prototxts of models/ from tools/zoo.")
    parser.add_argument("--check", action="store_true", help="only say which files are not current")
    parser.add_argument("--figures", action="store_true", help="the READMEs too")
    args = parser.parse_args(argv)
    files = all_files()
    if args.figures:
        readmes = {path.relative_to(MODELS).as_posix(): path.read_text() for path in MODELS.glob("*/README.md")}
        files |= figure_files(files, all_models(), readmes)
    changed = stale(files)
    for path in changed:
        if not args.check:
            (MODELS / path).parent.mkdir(parents=True, exist_ok=True)
            (MODELS / path).write_bytes(files[path].encode())
        print(f"{'not current' if args.check else 'written'}: models/{path}")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
