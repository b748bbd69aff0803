"""Elements of HTML and SVG: whatever is not markup already is escaped, so no name of a user can become an element."""

import html

# Elements that have no end tag.
_VOID = {"input", "meta", "br"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element; children that are no `Markup`, and all attributes, are escaped.

    A trailing underscore of an attribute is left out and others become hyphens, so that `class_` and `stroke_width`
    can be given. Attributes that are None are left out, True ones have no value.

    >>> tag("p", "a < b", tag("b", "c"), class_="note", hidden=None)
    '<p class="note">a &lt; b<b>c</b></p>'
    """
    words = [name]
    for key, value in attributes.items():
        known = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(known)
        elif value is not None:
            words.append(f'{known}="{html.escape(str(value))}"')
    if name in _VOID:
        return Markup(f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{join(*children)}</{name}>")


def join(*parts: object) -> Markup:
    """Return parts one after another, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(str(part)) for part in parts))
