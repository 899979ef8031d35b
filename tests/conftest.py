"""Before numpy is imported: one thread a process, so that tests do not depend on the number of cores.

And how many random examples hypothesis tries: always the same, unless `--hypothesis-profile=long` asks for more.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
for _name in ("FORCE_COLOR", "NO_COLOR"):  # what is printed does not depend on the user's shell
    os.environ.pop(_name, None)

from hypothesis import settings  # noqa: E402 - not before the threads are set

settings.register_profile("short", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("long", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile("short")
