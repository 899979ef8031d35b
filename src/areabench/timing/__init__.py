"""How fast each client is: update rates, and durations of rounds. May import the ground floor and `experiment`."""
