"""Which names timm can build: architectures, with or without the tag of published weights."""

from __future__ import annotations

from fnmatch import fnmatchcase

from suites.models.words import closest

_GLOB = frozenset("*?[")


def matching_names(pattern: str) -> tuple[str, ...]:
    """The names that ``pattern``, a name or a glob, stands for. ``LookupError`` if there is none."""
    from timm.models import get_deprecated_models, list_models

    if _GLOB & set(pattern):
        every = list_models(include_tags="." in pattern)
        names = tuple(name for name in every if fnmatchcase(name, pattern))
        if not names:
            text = "".join(letter for letter in pattern if letter not in "*?[]!")
            raise LookupError(f"timm has no model whose name fits {pattern!r}{closest(text, list_models())}")
        return names
    renamed = get_deprecated_models()
    if pattern in renamed:
        if renamed[pattern] is None:
            raise LookupError(f"timm has removed the model {pattern!r} and names nothing in its place")
        return (pattern,)
    if pattern in list_models() or pattern in list_models(include_tags=True):
        return (pattern,)
    architecture, _, tag = pattern.partition(".")
    if tag and architecture in list_models():
        tagged = [name for name in list_models(architecture + "*", include_tags=True) if name != architecture]
        tags = [name for name in tagged if name.startswith(architecture + ".")]
        raise LookupError(f"timm has no weights {pattern!r}; it has: {', '.join(tags) or 'none'}")
    raise LookupError(f"timm has no model {pattern!r}{closest(pattern, list_models())}")


def current_name(name: str) -> str:
    """What timm calls the architecture now: most renamed ones became a tag of another."""
    from timm.models import get_deprecated_models

    renamed: str | None = get_deprecated_models().get(name)
    return renamed or name
