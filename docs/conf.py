"""The site that `make docs` builds from these pages: Sphinx with furo, pages in Markdown (MyST)."""

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "src"), str(DOCS)]

from docstrings import as_rst  # noqa: E402
from keys import keys_of  # noqa: E402
from moved import write_forwards  # noqa: E402

import recsmith  # noqa: E402

project = "RecSmith"
author = "The RecSmith authors"
copyright = author  # noqa: A001 - Sphinx's name
version = release = recsmith.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"RecSmith {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
smartquotes = False  # -- is an option
nitpicky = True

# Pages are Markdown; links to headings take the names that GitHub gives them.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "deflist"]
copybutton_prompt_text = "$ "

# Only the page of recsmith.torchrec imports PyTorch and TorchRec.
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "__init__, __new__"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
default_role = "code"  # docstrings write `name` for code
# Types of the standard library and of private modules have no page here.
nitpick_ignore_regex = [("py:.*", r".*")]

OF_THE_REPOSITORY = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}


def within_the_site(app: Any, name: str, source: list[str]) -> None:
    """Links to files above docs/: pages that the site has too, downloads, or the mere name of a folder."""
    here = (DOCS / name).parent

    def told(match: re.Match[str]) -> str:
        text, target, place = match[1], (here / match[2]).resolve(), match[3] or ""
        if target.parent == ROOT and target.name in PAGES:
            return f"[{text}](/{PAGES[target.name]}{place})"
        return text if target.is_dir() and DOCS not in target.parents else match[0]

    source[0] = OF_THE_REPOSITORY.sub(told, source[0])


def with_keys(app: Any, name: str, source: list[str]) -> None:
    """Tables of every key of a file, where a page asks for them."""
    source[0] = re.sub(r"^%keys: ([\w-]+)%$", lambda match: keys_of(match[1]), source[0], flags=re.MULTILINE)


def plain_docstring(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Docstrings as reStructuredText; those of modules give way to the words of their pages."""
    lines[:] = [] if what == "module" else as_rst(lines, item)


def examples_as_code(app: Any, context: Any, lines: list[str]) -> None:
    """Commands that a help text shows, as code to copy."""
    told = "\n".join(lines)
    lines[:] = re.sub(
        r"(?:^\| .*\n?)+",
        lambda match: ".. code-block:: console\n\n" + re.sub(r"^\| ", "   $ ", match[0], flags=re.MULTILINE) + "\n",
        told,
        flags=re.MULTILINE,
    ).split("\n")


def old_addresses(app: Any, exception: Exception | None) -> None:
    """Addresses of pages that were merged into others."""
    if exception is None and app.builder.format == "html":
        write_forwards(Path(app.outdir))


def setup(app: Any) -> None:
    """Sphinx calls this once."""
    app.connect("build-finished", old_addresses)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon
    app.connect("source-read", within_the_site)
    app.connect("source-read", with_keys)
    app.connect("sphinx-click-process-description", examples_as_code)
