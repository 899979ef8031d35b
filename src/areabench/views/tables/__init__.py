"""Tables of sweeps as text, Markdown, LaTeX and CSV, in the form of the paper. Imports no other view."""
