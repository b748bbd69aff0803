"""Notebooks as pages of the site: text and code of each cell, and the notebook itself to download."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by MkDocs when it knows all files: adds a page for every notebook."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        assert file.abs_src_path is not None
        path = Path(file.abs_src_path)
        page = str(Path(file.src_uri).with_suffix(".md"))
        files.append(File.generated(config, page, content=write_page(path)))
    return files


def write_page(path: Path) -> str:
    """Return a notebook as Markdown, with a link to it below its title."""
    parts = [write_cell(cell) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    link = f"[This page as a notebook]({path.name}), without what its cells print."
    return "\n\n".join([parts[0], link, *parts[1:]]) + "\n"


def write_cell(cell: dict) -> str:
    """Return a cell as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return f"```python\n{source}\n```"
