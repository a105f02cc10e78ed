"""A tool of your own: an ordinary function. Offered by `tools.custom: ["../examples/my_tool.py:weather"]`.

The model sees its name, the docstring, and the parameters with their types. It runs in the sandbox, in a
process of its own for each call; with `host: true` and --allow-host-code, on your machine.
"""

from __future__ import annotations

from typing import Literal

_DEGREES = {"Hamburg": 11, "Lisbon": 19, "Oslo": 4}


def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, object]:
    """Tell the temperature of a city.

    Args:
        city: Its English name, such as Lisbon.
        unit: How the temperature is given.
    """
    if city not in _DEGREES:
        # An `error` is told to the model, and counts as a failed call. So does an exception.
        return {"error": f"no weather of {city}; known: {', '.join(_DEGREES)}"}
    degrees = _DEGREES[city]
    return {"city": city, "degrees": degrees if unit == "celsius" else degrees * 9 // 5 + 32, "unit": unit}
