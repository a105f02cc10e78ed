"""Docstrings in the styles that people write them in."""

from __future__ import annotations

import inspect

import pytest

from hermes_run.spec.docstrings import read_docstring

STYLES = {
    "google": """
        Tell the weather.

        At noon.

        Args:
            city (str): its name:
                in English.
            days: how many. Defaults to 1.
            *rest: nothing.
            other: is no parameter.

        Returns:
            days: of no interest.
        """,
    "numpy": """
        Tell the weather.

        At noon.

        Parameters
        ----------
        city : str
            its name:
            in English.
        days : int, optional
            how many. Defaults to 1.
        other : int
            is no parameter.

        Returns
        -------
        days : int
            of no interest.
        """,
    "sphinx": """
        Tell the weather.

        At noon.

        :param city: its name:
            in English.
        :type city: str
        :param int days: how many. Defaults to 1.
        :param other: is no parameter.
        :returns: nothing
            of interest.
        :rtype: dict
        """,
    "epytext": """
        Tell the weather.

        At noon.

        @param city: its name: in English.
        @param days: how many. Defaults to 1.
        @return: nothing of interest.
        """,
}


@pytest.mark.parametrize("style", STYLES)
def test_words_of_parameters_are_found_in_every_style(style: str) -> None:
    about, words = read_docstring(inspect.cleandoc(STYLES[style]), ["city", "days"])
    assert about == "Tell the weather.\n\nAt noon."
    assert words == {"city": "its name: in English.", "days": "how many. Defaults to 1."}


def test_two_parameters_of_one_line_have_the_same_words() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    A number."
    assert read_docstring(text, ["a", "b"])[1] == {"a": "A number.", "b": "A number."}


@pytest.mark.parametrize(
    "text",
    [
        "Do it: now.",
        "Return it.\n\nNotes on it\n---",
        "A table\n-------\nof it",
        ":emoji: and @someone: hello",
        "",
    ],
)
def test_what_only_looks_like_a_section_is_told(text: str) -> None:
    about, words = read_docstring(text, ["a"])
    assert about.split() == text.split()
    assert words == {}
