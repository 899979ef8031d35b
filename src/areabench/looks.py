"""How each method is called and coloured wherever it is shown: figures, pages and the terminal. Needs no matplotlib.

Colours are Okabe and Ito's, told apart by all. A method from outside the package is named by import path
(`module:function`): it is called by its function and gets one of the colours that are left, always the same one.
"""

from __future__ import annotations

import zlib

METHOD_NAMES = {"area": "AREA", "fedbuff": "FedBuff", "as-fedavg": "AS-FedAvg", "s-fedavg": "S-FedAvg"}  # AREA first
METHOD_COLOURS = {"area": "#0072B2", "fedbuff": "#E69F00", "as-fedavg": "#009E73", "s-fedavg": "#CC79A7"}
_OTHERS = ("#D55E00", "#56B4E9", "#000000")


def method_label(name: str) -> str:
    """What people call the method, or any other part that may be named by import path."""
    return METHOD_NAMES.get(name) or name.rpartition(":")[2]


def method_colour(name: str) -> str:
    """The colour of the method, as #RRGGBB."""
    return METHOD_COLOURS.get(name) or _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)]
