"""Configure the documentation site: `sphinx-build -W -c docs . build/site`, from the root of a checkout.

The source folder is the root, so that one relative link is right on the site, in an editor and on a code host. Pages
are those of docs/ and models/, and README.md and its like. Nothing is loaded from the web.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path

from docutils import nodes
from pygments.lexers.dsls import ProtoBufLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "docs"))

from pycaffe_lms.version import __version__  # noqa: E402

project = "pycaffe-lms"
author = copyright = "The pycaffe-lms authors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGES.md", "SECURITY.md", "docs/**", "models/**"]
exclude_patterns = [p.name for p in ROOT.iterdir() if p.is_dir() and p.name not in ("docs", "models")]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nb_execution_mode = "cache"  # notebooks are stored without outputs; the site shows those of a run
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell may take
nb_output_stderr = "remove"  # the log
nb_merge_streams = True
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # of their kernels
highlight_language = "text"

default_role = "code"  # a name in single backticks of a docstring
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"pycaffe-lms {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_site"]
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


class Mermaid(SphinxDirective):
    """Show a flowchart of docs/architecture.md as a table of boxes: mermaid itself would be loaded from the web."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        boxes, arrows = {}, {}
        for line in self.content:
            name, _, rest = line.strip().partition("[")
            if rest:
                title, about = rest.strip('[]"').replace("</b>", "").replace("<b>", "").split("<br/>")
                boxes[name] = (title, about)
            elif "-->" in line:
                source, target = (part.strip() for part in line.split("-->"))
                arrows.setdefault(source, []).append(target)
        rows = [
            f"| `{title}` | {about} | {', '.join(f'`{boxes[t][0]}`' for t in arrows.get(name, ()))} |"
            for name, (title, about) in boxes.items()
        ]
        text = "\n".join(["| package | what it is | imports |", "|---|---|---|", *rows])
        return self.parse_text_to_nodes(text)


def mark_flags(app: Sphinx, doctree: nodes.document) -> None:
    """Give literals that begin with a hyphen the class `flag`, so that site.css keeps the hyphen on the flag's line."""
    for node in doctree.findall(nodes.literal):
        if node.astext().startswith("-") and max(map(len, node.astext().split())) < 25:
            node["classes"].append("flag")


def join_lines(app: Sphinx, doctree: nodes.document) -> None:
    """Join lines of layers' docstrings that end only because they are full: the site breaks them where its own end."""
    if app.env.docname == "docs/layers":
        for node in doctree.findall(nodes.literal_block):
            node.rawsource = joined(node.astext())  # as it is: a text that differs is not highlighted
            node[:] = [nodes.Text(node.rawsource)]


def joined(text: str) -> str:
    """Return a docstring with a line for each statement: a long line without a full stop goes on in the next one."""
    return re.sub(r"^(.{95,}[^.\n])\n(?=\S)", r"\1 ", text, flags=re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Register what the pages use beyond Sphinx and MyST."""
    logging.getLogger("sphinx.sphinx.directives.other").addFilter(
        lambda record: "glob pattern" not in str(record.msg)  # one of index.md may have no page yet
    )
    app.add_directive("mermaid", Mermaid)
    app.connect("doctree-read", mark_flags)
    app.connect("doctree-read", join_lines)
    app.add_lexer("prototxt", ProtoBufLexer)
