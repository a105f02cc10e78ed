"""Floor 2: what goes out of this machine on a model's behalf, and comes in again.

One `Outside` belongs to a run (`outside.py`; tools see it as the Protocol of `core/contracts.py`), and
everything is made when first used. All of it passes one filtering proxy: `addresses.py` says which
addresses may be reached, `gate.py` resolves names and connects to what it has checked, `proxy.py` speaks
HTTP to our own client (`downloads.py`) and to the browser. `documents.py` turns documents into text, in a
process of its own (`reader.py`); `engines/` are the search engines, one a file; `cassette.py` records and
replays. `media.py` asks those who see, draw and speak; `services.py` reads what they and the engines answer.
`chromium.py` is the browser in its jail (`jail.py`, `netns.py`, `ground.py`).
"""
