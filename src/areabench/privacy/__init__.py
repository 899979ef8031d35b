"""What keeps one client's update from the server: keys, masks, and sealed memories.

`keys` agrees on a key per client with the helper, `masks` stretches keys into masks and has the helper's refusals,
`seal` encrypts what a client remembers for a checkpoint. Nothing here knows MPI, a clock or a run file.
"""
