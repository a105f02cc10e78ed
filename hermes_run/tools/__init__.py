"""Floor 2: the tools that models use. They know the Sandbox Protocol and no backend.

One file each: `terminal.py`, `process.py`, `file.py` (read and write), `patch.py`, `search.py`, `todo.py`.
`toolkit.py` is one rollout's tools, `arguments.py` reads what the model wrote. What several share:
`shell.py` (scripts and names, for any POSIX shell), `stored.py` (a file read and written whole),
`background.py` (commands left running), `output.py` (what a command printed), `lint.py` (syntax checks),
`matching.py` (the nine strategies), `patterns.py` and `globs.py` (what is searched for).
"""
