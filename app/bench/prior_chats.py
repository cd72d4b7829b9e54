"""."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.bench.decode import answer_chat
from app.bench.environment import BenchStores
from app.bench.recordings import RecordedChat
from app.bench.workloads import Workload
from app.engine.engine import Engine
from engines.chat_message import Message
from engines.sampler import Sampling

GIVEN, GREEDY, SAMPLED = "given", "greedy", "sampled"
WAYS = (GIVEN, GREEDY, SAMPLED)
"""How answers come about."""


NUCLEUS = Sampling(temperature=0.7, top_k=0, top_p=0.95, min_p=0.0)


SAMPLES = 3
"""The paper's settings of sampled histories, and its answers to each question."""


Text = list[int]
"""A chat's token ids, as the model would read it."""

USER, ASSISTANT = "user", "assistant"


@dataclass(frozen=True, slots=True)
class PriorChats:
    """Chats, and the stores that are to hold them.

    Attributes:
        name: for people; empty where there are no chats.
        way: how answers come about.
    """

    name: str
    stores: BenchStores
    chats: Sequence[RecordedChat] = ()
    way: str = GIVEN

    def fill(self, engine: Engine) -> Iterator[None]:
        """Answer what has to be answered and fill the stores; `engine` drafts nothing.

        Yields now and then; done when exhausted.
        """
        texts: list[Text] = []
        make = make_texts(engine, self.way)
        for chat in self.chats:
            texts += make(chat)
            yield
        yield from self.stores.fill(engine.target, texts)


def make_texts(engine: Engine, way: str) -> Callable[[RecordedChat], Iterator[Text]]:
    """How a chat becomes texts; `engine` drafts nothing. Chats without questions become none.

    What has no answer is answered greedily.
    """
    samplings = [Sampling(temperature=0.0)]
    if way == SAMPLED:
        samplings = [replace(NUCLEUS, seed=seed) for seed in range(SAMPLES)]

    def texts(chat: RecordedChat) -> Iterator[Text]:
        questions = tuple(said.text for said in chat.messages if said.role == USER)
        if way == GIVEN and any(said.role == ASSISTANT for said in chat.messages):
            yield recorded(engine, chat)
        elif questions:
            for sampling in samplings:
                last = answer_chat(engine, Workload(str(chat.number), questions), (), sampling)[-1]
                yield [*last.prompt, *last.tokens]

    return texts


def recorded(engine: Engine, chat: RecordedChat) -> Text:
    """A chat as it stands, up to the token that ends its last message."""
    tokens = engine.render([Message(said.role, said.text) for said in chat.messages])
    ends = [place for place, token in enumerate(tokens) if token in engine.vocabulary.stops]
    return tokens[: ends[-1] + 1] if ends else tokens
