"""Splits a question into words, and tells which of them carry its subject."""

from __future__ import annotations

import re

from datastores.search_form import WORD, fold, grams, index_form, split_runs, word_form

MAX_QUERY_WORDS = 64
"""Later words are ignored: a query is a question or 32 tokens, never a document."""
MIN_STATISTICS = 1000
"""Minimum number of passages assumed in word statistics: in a few notes, the words that they
contain would otherwise count less than those that they lack."""
_STOP_WORDS = """
a about all an and any anyone are as at be been being best but by can command could did do does
doing each easiest everyone everything few for from get give had has have having he help here how i
idea if in is it its just know let line linux looking make may me might more most must my need no
nor not now of off on once only or other our over own please possible recommend remind same shall
she shell should show simplest so some someone something such tell terminal than that the their them
then there these they thing things this those to too try trying under us use used using very want
was way ways we were what when where which who whom whose why will with wonder wondering would you
your
"""
_GREETINGS = "bye goodbye hello hey hi ok okay thank thanks yeah yes"
STOP_WORDS = frozenset([*_STOP_WORDS.split(), *_GREETINGS.split()])
"""English words of a question that do not carry its subject."""

_QUESTION_WORDS = """
où quand comment pourquoi combien quel quelle quels quelles
wer wann wie warum wieso welche welcher welches wieviel
quién dónde cuándo cómo cuál cuánto cuánta cuántos onde quais quanto perché
waar wanneer waarom hoe welke hoeveel
varför vilken hvem hvad hvornår hvorfor hvilken hvordan kuka mikä missä milloin miksi miten
gdzie kiedy jak dlaczego który kdo kdy proč kolik mikor miért hogyan mennyi unde când
кто что где когда как почему зачем сколько какой какая какие хто що коли чому скільки який
ποιος πού πότε πώς γιατί πόσο nerede nasıl neden niçin hangi kaç
من أين متى كيف لماذا كم ما هل מי מה איפה מתי איך למה כמה האם
कौन क्या कहाँ कब कैसे क्यों कितना कितने đâu nào
"""
NO_SUBJECT = STOP_WORDS.union(WORD.findall(word_form(fold(_QUESTION_WORDS))))
"""`STOP_WORDS` and question words of other languages, except those with another meaning in
English."""

_OWN = """
my mine our ours mein meine meinen meinem meiner meines unser unsere unserem unseren unserer
mon mes notre nos mis nuestro nuestra nuestros nuestras mio mia miei nostro nostra nostri nostre
meu minha meus minhas nosso nossa mijn onze mitt mina vår vårt våra vores mój moja nasz nasza můj
мой моя моё мои наш наша наше наши мій μου μας benim bizim 내
"""
OWN = frozenset(WORD.findall(word_form(fold(_OWN))))
"""Words for what is the asker's own, in some languages."""
OWN_PARTS = "我的", "我们", "我們", "私の", "うちの", "우리"
"""The same where words are not always divided by spaces."""

_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
"""Endings to remove, so that the "s" of "the router's address" is not a word of the question."""

_STOP_PHRASES = """
为什么 什么时候 是什么 什么 怎么样 怎么办 怎么做 怎么 怎样 如何 哪里 哪儿 哪个 哪些 多少 请问 是否
是不是 有没有 能不能 可以 告诉我 我们 你们 的 了 吗 呢 吧
為什麼 什麼時候 是什麼 什麼 怎麼樣 怎麼 怎樣 哪裡 哪兒 哪個 請問 有沒有 我們 你們 嗎
ください でしょうか でしょう ですか ますか ましたか ました ません です ます
する方法 するには したい する 方法 やり方
いつ どこ なに なぜ どう どの どれ いくら いくつ について とは 何時 何 誰
언제 어디 무엇 무슨 누가 누구 어떻게 얼마나 얼마 어느
"""
_PARTICLES = (
    "(?<=[\u30a1-\u30ff\u4e00-\u9fff])(?:から|まで|より|[のはがをにへともでやか])(?![ぁ-ん])"
)
"""Japanese particles between a noun and anything that is not hiragana."""
_STOP_PHRASE = re.compile(
    "|".join([*sorted(_STOP_PHRASES.split(), key=len, reverse=True), _PARTICLES])
)
"""Stop phrases of Chinese, Japanese and Korean."""
MIN_QUESTION = 5
"""Characters from which a phrase in these languages may be more than a name."""
_ENDING = re.compile(
    "(?<=[가-힣])(?:에서|으로|까지|부터|에게|한테|습니까|입니까|나요|까요|세요"
    "|[은는이가을를의에로와과도만])$"
)
"""Korean particles and endings."""
_LONE_IDEOGRAPH = re.compile("(?<![々一-鿿])[一-鿿](?![々一-鿿])")
"""The stem of a Japanese word without its ending."""


def informative_words(query: str) -> list[str]:
    """The distinct words of the query in order, without stop words unless there are no others."""
    pieces = (
        _STOP_PHRASE.sub(" ", piece) if is_run and len(piece) >= MIN_QUESTION else piece
        for piece, is_run in split_runs(fold(query))
    )
    asked = (word for word in words_of("".join(pieces)) if word not in NO_SUBJECT)
    words = list(dict.fromkeys(asked)) or list(dict.fromkeys(words_of(query)))
    return words[:MAX_QUERY_WORDS]


def split_words(text: str) -> list[str]:
    """The words of `text` in lower case, in order, split as in the word index."""
    return [word.lower() for word in WORD.findall(index_form(text))]


def words_of(query: str) -> list[str]:
    """The words of a question in lower case, in order, without contracted endings ("what's")."""
    words: list[str] = []
    for piece, is_run in split_runs(word_form(fold(_CONTRACTION.sub("", query)))):
        words += _run_words(piece) if is_run else map(str.lower, WORD.findall(piece))
    return words


def _run_words(run: str) -> list[str]:
    """The bigrams to search for, including those of a word without its ending."""
    return [*grams(run), *grams(_ENDING.sub("", run)), *_LONE_IDEOGRAPH.findall(run)]


_SMALL_TALK = """
good morning afternoon evening night day great nice cool perfect awesome excellent amazing lovely
fine wonderful brilliant lol haha hmm wow sorry welcome cheers much lot again more better wrong
right yep nope sure no well done
hallo moin tschüss danke schön gut guten tag morgen abend bitte ja nein super prima
bonjour bonsoir salut merci beaucoup oui non bien hola buenos días buenas tardes noches gracias sí
muchas ciao buongiorno grazie mille olá bom dia obrigado obrigada hoi bedankt dank hej tack tak
привет спасибо здравствуйте да нет 你好 谢谢 ありがとう こんにちは
"""
SMALL_TALK = NO_SUBJECT.union(words_of(_SMALL_TALK))
"""Words with which people greet, thank and comment; some carry a subject elsewhere."""


def is_about_own(question: str) -> bool:
    """Whether `question` is about something of the asker's own, as far as its words tell."""
    if any(part in question for part in OWN_PARTS):
        return True
    return not OWN.isdisjoint(WORD.findall(word_form(fold(question)).lower()))


def is_small_talk(query: str) -> bool:
    """Whether `query` only greets, thanks or comments, in words that ask for nothing."""
    return SMALL_TALK.issuperset(words_of(query))
