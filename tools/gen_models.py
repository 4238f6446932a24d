"""Write the prototxts of models/ from tools/zoo.

python tools/gen_models.py            write every file
python tools/gen_models.py --check    write nothing; exit 1 and name the files that are not current
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo import all_files  # noqa: E402

MODELS = ROOT / "models"


def stale() -> list[str]:
    """Paths under models/ that are missing or differ from what the zoo gives."""

    def current(path):
        file = MODELS / path
        return file.read_bytes() if file.is_file() else None

    return [path for path, text in all_files().items() if current(path) != text.encode()]


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write the prototxts of models/ from tools/zoo.")
    parser.add_argument("--check", action="store_true", help="only say which files are not current")
    check = parser.parse_args(argv).check
    changed = stale()
    for path in changed:
        if not check:
            (MODELS / path).parent.mkdir(parents=True, exist_ok=True)
            (MODELS / path).write_bytes(all_files()[path].encode())
        print(f"{'not current' if check else 'written'}: models/{path}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
