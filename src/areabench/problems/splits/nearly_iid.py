"""An even split of each label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from areabench.errors import UserError
from areabench.problems.splits.rows import Rows, SplitSettings, shuffled_classes


@dataclass(frozen=True, kw_only=True)
class NearlyIid(SplitSettings):
    """The paper's IID split for n = 128: equally many of each label per client, the rest for the last one."""

    words = "IID"

    name: str = "nearly-iid"

    def owners(self, labels: Rows, clients: int, generator: np.random.Generator) -> Rows:
        """Of a label with c rows each client except the last gets floor(c/n), and the last one the rest."""
        owners = np.full(len(labels), clients - 1, dtype=np.int64)
        classes = shuffled_classes(labels, generator)
        most = max(len(rows) for rows in classes)
        if clients > most:
            raise UserError(
                f"split `nearly-iid`: {clients} clients, but the most frequent label has {most} samples, so all "
                f"but the last would be empty; lower clients.count to {most} or take split `iid`"
            )
        # What is left over stays with the last client.
        for rows in classes:
            each = len(rows) // clients
            owners[rows[: each * (clients - 1)]] = np.repeat(np.arange(clients - 1), each)
        return owners
