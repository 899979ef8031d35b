"""Many runs: the sweep file, its plan, its folder, and running and reading it.

May import every room below: experiment to launch. `read` runs nothing and is what the rooms above read sweeps with.
"""
