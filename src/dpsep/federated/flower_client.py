"""The site's side of Flower: the ClientApp, and how one message becomes one answer.

The node's configuration names the site's file: ``--node-config 'config="/path/site.toml"'``. Flower starts a
process for every message to a ClientApp, so what is slow to import is imported only when a question needs it.

**Privacy.** A message is answered by `dpsep.federated.site.Site`, which charges, computes and keeps; nothing
of a record passes here but inside its answer. Errors that are not the site's own become an empty answer, and
what they say stays at the site: their text could quote a cell.

Flower runs the code of the app that the server sends. A site that is to trust nobody must not let it:
`dpsep.federated.flower_site` (``dpsep federate site``) answers with the code that is installed at the site
and runs none that comes over the wire. This ClientApp is for federations that already ship and sign apps.
"""

import functools
import logging
import time
from collections.abc import Callable

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dpsep.federated.flower_message import ASK, NAME, content, payload
from dpsep.federated.transport import Answers

__all__ = ["app", "reply"]

log = logging.getLogger("dpsep.federated")


def reply(message: Message, site: Callable[[], Answers], name: str, *, timing: bool = False) -> Message:
    """Answer one message; never raise.

    Parameters
    ----------
    message
        From the server.
    site
        Gives the site; called only when there is a question for it.
    name
        The site's name.
    timing
        Tell how long the answer took; for demonstrations.
    """
    kind = message.metadata.message_type
    if kind == NAME:
        return Message(content(name.encode()), reply_to=message)
    question = payload(message)
    if kind != ASK or question is None:
        log.warning("a message that is no question was not answered")
        return Message(content(b""), reply_to=message)
    start = time.perf_counter()
    try:
        answer = site().answer(question)
    except Exception as error:
        log.error("the question was not answered: %s", type(error).__name__)
        answer = b""
    return Message(content(answer, time.perf_counter() - start if timing else None), reply_to=message)


app = ClientApp()


@app.query("name")
def tell_name(message: Message, context: Context) -> Message:
    """Say which site this is."""
    return _answered(message, context)


@app.query("ask")
def answer(message: Message, context: Context) -> Message:
    """Answer a question."""
    return _answered(message, context)


def _answered(message: Message, context: Context) -> Message:
    from dpsep.federated.config import read_site

    settings = read_site(str(context.node_config["config"]))
    timing = bool(context.node_config.get("timing", False))
    return reply(message, functools.cache(settings.open), settings.name, timing=timing)
