"""Small experiments that several tests write to files."""

from __future__ import annotations

QUADRATIC = """
name = "tiny"
[clients]
count = 2
[method]
name = "area"
step_size = 0.05
[stop]
iterations = 20
[problem]
name = "quadratic"
dimension = 3
"""
BLOBS = """
[data]
name = "synthetic"
train_samples = 40
test_samples = 10
features = 3
classes = 3
"""
