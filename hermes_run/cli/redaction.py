"""Taking secrets out of what the command line and the log say; the forms of a secret are `core.secrets`'."""

from __future__ import annotations

from hermes_run.core.secrets import MARK, SHORTEST, forms_of, make_redactor

__all__ = ["MARK", "SHORTEST", "forms_of", "make_redactor"]
