"""The documentation site: `make docs` builds it with Sphinx from the Markdown files where they stand.

The sources begin at the repository's top folder, so that a link or an image has the same path on the site and where
the files are read as they are.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from areabench import __version__

project = "areabench"
author = "The areabench developers"
release = version = __version__
root_doc = "docs/index"
include_patterns = [
    "*.md", "docs/*.md", "benchmarks/*.md", "benchmarks/studies/*.md", "jobs/*.md", "analysis/*.md", "src/**/ORIGIN.md",
]  # fmt: skip

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
highlight_language = "none"  # each block says what it is
smartquotes = False  # keys and values are quoted as they are typed
default_role = "code"  # docstrings write code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"NDArray": "NDArray", "Vector": "Vector", "Values": "Values", "Counts": "Counts"}
python_use_unqualified_type_names = True
nitpicky = True
# The names of others have no page here, and the site is built without the network; the experiment file has a page.
nitpick_ignore_regex = [
    ("py:.*", r"(np|numpy|pd|pandas|matplotlib|pathlib|collections|NDArray|Path)\b.*"),
    ("py:.*", r"(Vector|Values|Counts|Experiment|RuleName)\b.*"),
    ("py:.*", r"areabench\.(experiment|problem_settings|fault_settings|verdict)\..*"),
]

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


def write_docstring(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks: |x*| is a norm."""
    lines[:] = [line for line in lines if not line.startswith("Alias for field number ")]  # nobody wrote that
    lines[:] = ["".join(_escaped(part) for part in re.split(r"(`[^`]*`)", line)) for line in lines]


def write_aliases(
    _: Sphinx, __: str, ___: str, ____: object, _____: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Name an alias within another type, Sequence[Vector], as it is named elsewhere."""
    plain = [text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (signature, returned)]
    return plain[0], plain[1]


def _escaped(part: str) -> str:
    return part if part.startswith("`") else re.sub(r"([*_|\\])", r"\\\1", part)


def unlink_folders(application: Sphinx, document: str, source: list[str]) -> None:
    """A link to a folder leads somewhere on a code host; the site has no page for it."""
    here = Path(application.srcdir, document).parent
    source[0] = _FOLDER_LINK.sub(lambda link: link["words"] if (here / link["path"]).is_dir() else link[0], source[0])


def show_comments_on_fields() -> None:
    """Have the comment behind a field of a record read as its description, as if it began with `#:`."""
    analyze = ModuleAnalyzer.analyze

    def analyze_with_comments(self: ModuleAnalyzer) -> None:
        self.code = re.sub(r"^(    \w+(?:: | = ).*?)  # ", r"\1  #: ", self.code, flags=re.MULTILINE)
        analyze(self)

    ModuleAnalyzer.analyze = analyze_with_comments  # type: ignore[method-assign]


def setup(application: Sphinx) -> None:
    """Hook in what no setting says."""
    show_comments_on_fields()
    application.connect("autodoc-process-docstring", write_docstring)
    application.connect("autodoc-process-signature", write_aliases)
    application.connect("source-read", add_navigation)
    application.connect("source-read", unlink_folders)
