"""Many runs: the sweep file, its plan, its folder, and running and reading it. `read` runs nothing."""
