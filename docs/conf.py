"""The documentation site: `make docs` builds it with Sphinx from the Markdown files where they stand.

The sources begin at the repository's top folder, so that a link or an image has the same path on the site and where
the files are read as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

from areabench import __version__

project = "areabench"
author = "The areabench developers"
release = version = __version__
root_doc = "docs/index"
include_patterns = [
    "*.md", "docs/*.md", "benchmarks/results/*.md", "benchmarks/results/studies/*.md", "jobs/*.md", "analysis/*.md",
    "src/**/ORIGIN.md", "analysis/paper/ORIGIN.md",
]  # fmt: skip

extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries have no page here
myst_heading_anchors = 4
highlight_language = "none"  # each block says what it is
smartquotes = False  # keys and values are quoted as they are typed
nitpicky = True

html_theme = "furo"
html_title = f"areabench {__version__}"
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_extra_path = ["site/index.html"]  # at the top of the site; it leads to the front page
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

_HEADING = re.compile(r"## (?P<caption>.+)")
_LINK = re.compile(r"- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\)")
_FOLDER_LINK = re.compile(r"(?<!!)\[(?P<words>[^\]]+)\]\((?P<path>[\w./-]+)\)")


def navigation_of(text: str) -> str:
    """A hidden toctree for each heading of the front page, with the pages of the list below it in the same order."""
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            sections.append((heading["caption"], []))
        elif link := _LINK.match(line):
            sections[-1][1].append(f"{link['title']} <{link['page']}>\n")
    return "".join(
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{''.join(entries)}```\n" for caption, entries in sections
    )


def add_navigation(_: Sphinx, document: str, source: list[str]) -> None:
    """Make the front page's lists of links the site's navigation too."""
    if document == root_doc:
        source[0] += navigation_of(source[0])


def unlink_folders(application: Sphinx, document: str, source: list[str]) -> None:
    """A link to a folder leads somewhere on a code host; the site has no page for it."""
    here = Path(application.srcdir, document).parent
    source[0] = _FOLDER_LINK.sub(lambda link: link["words"] if (here / link["path"]).is_dir() else link[0], source[0])


def plain_docstring(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` and indented tables; Sphinx would take a bar or a star for its own mark."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"([|*_])", r"\\\1", words) for words in parts[::2]]
        lines[number] = line if line.startswith(" ") else "``".join(parts)
        if line.endswith(":") and any(after.startswith(" ") for after in lines[number + 1 : number + 3]):
            lines[number] += ":"


def setup(application: Sphinx) -> None:
    """Register what changes the sources and the docstrings."""
    application.connect("autodoc-process-docstring", plain_docstring)
    application.connect("source-read", add_navigation)
    application.connect("source-read", unlink_folders)
