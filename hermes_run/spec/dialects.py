"""The dialects of OpenAI-compatible endpoints: what only some of them understand, as one table.

`docs/providers.md` prints it for people; a test keeps the two alike. What a dialect cannot express, or
has no level for, is said before a run (`spec.endpoint.warnings_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""The spec's levels of reasoning, from least to most; `none` is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectTraits:
    """What an endpoint of this dialect understands.

    Attributes:
        reasoning: where a level goes: `object` (`reasoning: {effort}`), `field` (`reasoning_effort`), or
            "" when it has no such thing.
        off: how reasoning is switched off: `disabled` (`reasoning: {enabled: false}`), `none`
            (`reasoning_effort: none`), `template` (`chat_template_kwargs: {enable_thinking: false}`), or
            "" when nothing is sent.
        is_off_unasked: whether it does not reason unless it is asked to.
        levels: those it has, from least to most.
        honours: what it understands without being declared to: `reasoning`, `routing`, `cache_marks`.
        declared: what an entry of hermes.yaml can add with its `honours`.
    """

    reasoning: str = "object"
    off: str = "disabled"
    is_off_unasked: bool = False
    levels: tuple[str, ...] = LEVELS
    honours: frozenset[str] = frozenset()
    declared: frozenset[str] = frozenset({"reasoning", "routing", "cache_marks"})

    def understood(self, declared: Collection[str]) -> frozenset[str]:
        """What an endpoint understands that declares so much."""
        return self.honours | self.declared.intersection(declared)


TRAITS: Mapping[str, DialectTraits] = {
    "openrouter": DialectTraits(
        levels=("minimal", "low", "medium", "high", "xhigh", "max"),
        honours=frozenset({"reasoning", "routing", "cache_marks"}),
    ),
    "nous": DialectTraits(
        off="",
        levels=("minimal", "low", "medium", "high", "xhigh", "max"),
        honours=frozenset({"reasoning"}),
    ),
    "openai": DialectTraits(
        reasoning="field",
        off="none",
        levels=("minimal", "low", "medium", "high", "xhigh"),
        honours=frozenset({"reasoning"}),
    ),
    "anthropic": DialectTraits(reasoning="", off="", is_off_unasked=True, declared=frozenset()),
    "google": DialectTraits(
        reasoning="field", off="none", levels=("low", "medium", "high"), honours=frozenset({"reasoning"})
    ),
    "vllm": DialectTraits(reasoning="field", off="template", levels=("low", "medium", "high")),
    "sglang": DialectTraits(reasoning="field", off="template", levels=("low", "medium", "high")),
    "ollama": DialectTraits(
        reasoning="field", off="none", levels=("low", "medium", "high"), honours=frozenset({"reasoning"})
    ),
    "generic": DialectTraits(),
}
"""Sources: the API references of the providers, 2026. OpenRouter has no `ultra`, OpenAI no `max`; Nous
Portal refuses `enabled: false`; Google's compatible endpoint refuses `minimal`; Anthropic's ignores
`reasoning_effort` and cache marks, and thinks only when its own `thinking` field asks for it; vLLM and
SGLang hand a level to the model's chat template: their entry in hermes.yaml has to say that it knows it."""


def level_for(dialect: str, level: str) -> str:
    """The dialect's own level for one of ours: the same, else the nearest below, else its least."""
    own = TRAITS[dialect].levels
    below = [each for each in own if LEVELS.index(each) <= LEVELS.index(level)]
    return below[-1] if below else own[0]
