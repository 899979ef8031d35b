"""How fast each client is: update rates, and durations of rounds. A delay model is one file, with a line here."""

from areabench.settings.parts import Parts
from areabench.timing.own import OwnDelays

RATES = Parts(
    "timing",
    {"uniform": "rates", "normal": "rates", "lognormal": "rates", "list": "rates"},
)
DELAYS = Parts(
    "timing",
    {
        "exponential": "exponential",
        "fixed": "fixed",
        "trace": "trace",
    },
    own=OwnDelays,
)
