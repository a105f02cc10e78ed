"""Floor 2: the backends. One file each; what they share starts with an underscore.

`_kept_shell.py` is the Sandbox of every backend that can give it a Place (a running shell, a mailbox, a
folder of named pipes); such places are `_box.py`, and what their backends share is `_box_backend.py`.
`_stream_shell.py` is the Sandbox where all there is are byte streams.
"""
