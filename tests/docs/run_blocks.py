"""Run code blocks of a page one after the other, as a reader would: `python run_blocks.py FILE.json`.

The file has a list of [language, text, line, page]. Blocks of bash stop at the first command that fails; those of
Python share their names. The exit code is that of the first block that fails, which is named on stderr.
"""

import json
import subprocess
import sys
from pathlib import Path

names = {"__name__": "__main__"}
for language, text, line, page in json.loads(Path(sys.argv[1]).read_text()):
    print(f"--- {page}:{line}", file=sys.stderr, flush=True)
    if language == "bash":
        text = text.replace("pip install . && ", "")  # it is installed
        code = subprocess.run(["bash", "-euo", "pipefail", "-c", text]).returncode
        if code:
            sys.exit(f"{page}:{line}: exit code {code}")
    else:
        exec(compile("\n" * (line - 1) + text, page, "exec"), names)
