r"""Formulas as MathML, made when the site is built.

Pages write LaTeX between dollars; `pymdownx.arithmatex` marks it, and latex2mathml turns it into MathML,
which browsers draw themselves. So the site needs no script and no font for mathematics, works from disk, and
screen readers can read it.
"""

import html
import re

from latex2mathml.converter import convert

__all__ = ["drawn"]

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def drawn(content: str) -> str:
    r"""Return a page's HTML with its formulas as MathML.

    Examples
    --------
    >>> drawn(r'<span class="arithmatex">\(x\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    content = INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    return BLOCK.sub(lambda found: _mathml(found[1], "block"), content)


def _mathml(latex: str, display: str) -> str:
    latex = html.unescape(latex).strip()
    try:
        made = convert(latex, display=display)
    except Exception as error:
        raise ValueError(f"this formula cannot be drawn ({type(error).__name__}): {latex}") from error
    if "\\" in re.sub(r"<[^>]*>", "", made):
        raise ValueError(f"a command of this formula is not known: {latex}")
    return made
