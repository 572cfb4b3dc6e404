"""Whether a text reads as a standing order to an agent: by its wording alone, in English.

Nothing here can tell whether a fact is true, or who planted it, and an order that is put as a mere fact is not seen.
What is no order must not be called one: of ordinary memories at most one in 500. The first look at a text is one for
single words, since every memory of a store gets it; only what has one of them is looked at closely, sentence by
sentence, as somebody reads it: without invisible characters, look-alike letters as what they pass for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

from mem0audit.core.needed import Screen

LONGEST: Final = 20_000
"""Characters of one text that are looked at closely: a memory is a sentence, and searches are not free."""


def _joined(text: str) -> str:
    """Lines of a pattern put together, without their indentation."""
    return "".join(line.strip() for line in text.splitlines())


# --- The first look -------------------------------------------------------------------------------------


def _inflected(words: str) -> Iterator[str]:
    for word in words.split():
        stem, without_y = word.removesuffix("e"), word.removesuffix("y")
        yield from (word, f"{word}s", f"{word}d", f"{word}ed", f"{stem}ing", f"{stem}es", f"{stem}ed")
        yield from (f"{without_y}ies", f"{without_y}ied", f"{word}{word[-1]}ed", f"{word}{word[-1]}ing")


_TELLING: Final = frozenset(
    re.findall(
        r"\S+",
        """
    always never ever must shall should you you're your henceforth whenever regardless matter circumstances
    automatically permanently unconditionally forward default without answering responding replying im_start
    jailbreak mode inst don't no not any all every each time when if once before after upon whatever
    assistant assistants agent agents ai ais bot bots chatbot chatbots llm llms copilot claude chatgpt gpt
    webhook external wallet iban account blanket standing advance unlimited unrestricted anything everything
    security safety verification confirmation approval review root admin sudo
    anybody anyone whoever precedence priority authority outrank outranks tell say claim hide keep secrets shared
    given open unlock consents filter filters unfiltered
    b c d e f g h j k l m n o p q r s t u v w x y z 2fa mfa tls ssl
    """,
    )
) | frozenset(
    _inflected(
        """
        ignore disregard forget override bypass supersede void instruct instruction rule guideline prompt directive
        policy restriction constraint guardrail safeguard pretend reveal repeat trust obey follow execute comply
        treat consent approve authorize authorise permit whitelist delegate skip disable suppress circumvent exempt
        waive omit forward email disclose leak transmit exfiltrate redirect bcc
        """
    )
)
"""Words of which an order has at least one. Single letters are those of words spelled out."""
_LEET_LETTERS: Final = str.maketrans("013457@$", "oieastas")


def _bytes_as(said: Callable[[str], str]) -> bytes:
    """A table for `bytes.translate`: what each ASCII character is for us."""
    return bytes(ord(said(chr(code))) if code < 128 else code for code in range(256))


_TELLING_WORDS: Final = _bytes_as(lambda c: c.lower() if c.isalnum() or c in "'_" else " ")
_MIXED: Final = _bytes_as(lambda c: "a" if c.isalpha() or c in "'_" else "0" if c.isdigit() else " ")


def may_be_order(text: str) -> bool:
    """Whether the text is worth asking if it is an order: it has a word that orders have, be it with digits for some
    of its letters, or is no plain ASCII."""
    if not text.isascii():
        return True
    raw = text.encode()
    words = raw.translate(_TELLING_WORDS).decode().split()
    if not _TELLING.isdisjoint(words):
        return True
    if "0" in text or "1" in text or "3" in text or "4" in text:
        mixed = raw.translate(_MIXED)
        if b"a0" in mixed or b"0a" in mixed:
            for word in words:
                if not word.isalpha() and not word.isdigit() and word.translate(_LEET_LETTERS) in _TELLING:
                    return True
    return False


# --- Texts as they are read -----------------------------------------------------------------------------

_LOOK_ALIKE: Final = str.maketrans(
    "аеёзікорстухцѕјһԁӏѵωαβεηικνορτυχγіїҽցոսօԛԝᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢıɑɡℓ’‘ʼ“”‐‑–—",
    "aee3ikopctyxusjhdlvwabenikvoptuxyiieqnuoqwabcdefghijklmnoprstuvwyziagl'''\"\"----",
)
"""Letters of other scripts, and small capitals, that look like Latin ones (after `casefold`)."""
_SPACED: Final = re.compile(r"(?<!\w)(?:[^\W\d_][ .\-_*|]){3,}[^\W\d_](?!\w)")
_LEET: Final = re.compile(
    r"(?<!\w)(?=[013457@$]{0,23}[a-z])(?=[a-z]{0,23}[013457@$])[a-z013457@$]{3,24}(?!\w)"
)
_UNSEEN: Final = frozenset(("Cf", "Mn", "Me", "Cc", "Co", "Cn"))


class _AsRead(dict[int, str]):
    """A table for `str.translate`: what each character of a text is read as."""

    MOST: Final = 20_000

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if unicodedata.category(char) in _UNSEEN and char not in "\n\t":
            read = ""
        else:
            read = char.casefold().translate(_LOOK_ALIKE)
        if len(self) < self.MOST:
            self[code] = read
        return read


_AS_READ: Final = _AsRead()
_SHAPES: Final = _bytes_as(
    lambda c: "a" if c.isalpha() else "0" if c in "013457@$" else " " if c in " .-_*|" else "x"
)


def plain_words(text: str) -> str:
    """The text as somebody reads it: invisible characters gone, look-alike letters as the Latin ones that they pass
    for, letters that are spaced out put together, small letters."""
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKD", text).translate(_AS_READ)
    if text.isascii():
        shape = text.encode().translate(_SHAPES)
        if b" a a " not in shape and b"a0" not in shape and b"0a" not in shape:
            return text  # what both searches below need, without a search
    text = _SPACED.sub(lambda m: re.sub(r"[ .\-_*|]", "", m[0]), text)
    return _LEET.sub(lambda m: m[0].translate(_LEET_LETTERS), text)


_SENTENCE: Final = re.compile(r"[.!?;:]+(?=\s|$)|\n+|[()\[\]{}<>]+|\s[-*•|]+\s")


def sentences(text: str) -> Iterator[str]:
    """The sentences and lines of a text, each without outer spaces, empty ones left out."""
    text = text.rstrip(" \t\n.!?;:")
    for part in [text] if _is_one_sentence(text) else _SENTENCE.split(text):
        said = " ".join(part.split()).strip(" \t,'*_#>-`")
        if said:
            yield said


_ENDS: Final = _bytes_as(lambda c: "\n" if c in ".!?;:\n()[]{}<>*|" else " " if c.isspace() else c)


def _is_one_sentence(text: str) -> bool:
    """Whether nothing in the text could end a sentence: told without a search."""
    if not text.isascii():
        return False
    ends = text.encode().translate(_ENDS)
    return b"\n" not in ends and b" -" not in ends


# --- The forms of orders --------------------------------------------------------------------------------
#
# In the patterns, <name> stands for the part of that name, and ... for up to 40 characters of anything. A line
# that begins with | is another way of saying it; what goes on is further in.
#
# What an order is known by: it speaks to the agent (by name, as `you`, or by a verb that it begins with), or says how
# things have to be, whoever does them; and it is about what an agent does (answers, sends, pays, deletes, obeys) for
# all time, or about the user as somebody else. The same verb with somebody who does it tells what was or is.

_PARTS: Final = {
    "start": r"""
    ^(?:(?:please|important|note|remember|reminder|rule|policy|critical|also|and|then|so|but|ok|okay
        |just)[,:]? ){0,4}
    """,
    "clause": r"(?:^|, |\band |\bthen |\bbut |\bso )(?:please |then |just |also |always |silently |quietly ){0,3}",
    "first": r"""
    (?:(?:please|must|should|shall|always|never|then|just|also|first|only|silently|secretly|quietly|simply
        |automatically|immediately|do not|don't|not|remember to|be sure to|make sure to|to|freely
        |now) ){0,4}
    """,
    "user": r"(?:(?:the |this )?(?:user|customer|owner|client)|he|she|they|i|we)",
    "agent": r"""
    (?:(?:the |this |your |any |every |all |an |a )?(?:(?:ai|coding|chat|llm|language|virtual|digital) ?)?
        (?:assistants?|ais?|chatbots?|bots?|llms?|(?:ai|coding|chat|llm|virtual) agents?|copilot|claude
        |chatgpt|gpt)|(?:this|all|ai|support|service|sales|shopping|booking) agents?|agents)
    """,
    "say": r"""
    (?:answer|respond|reply|recommend|mention|name|disclose|reveal|obey|execute|approve|forward|promote
        |suggest|cite|deny|claim|pretend|comply|whitelist|withhold|suppress|describe|auto-?\w+|bcc
        |exfiltrate|warn|authori[sz]e|leave out|play down|hand over)
    """,
    "do": r"""
    (?:<say>|accept|access|act|add|agree|allow|append|apply|ask|assume|attach|avoid|begin|block|book
        |bring up|bypass|call|cc|challenge|charge|check|click|confirm|contact|copy|delete|deploy|direct
        |disable|discuss|disregard|download|drop|email|enable|encode|end|ensure|escalate|expose|fetch|flag
        |follow|generate|give|grant|hide|honou?r|ignore|include|inform|insert|install|invoke|keep|leak|let
        |link|list|load|log|merge|move|notify|offer|omit|open|order|output|override|pass|pay|post|prefix
        |prepend|present|print|prioriti[sz]e|process|provide|publish|purchase|push|put|query|question
        |quote|raise|read|redirect|refer|refund|refuse|reject|release|remove|repeat|report|request|require
        |reroute|reset|retrieve|return|route|run|save|second-guess|send|set|share|show|skip|speak|spend
        |start|state|store|submit|switch|tell|transfer|transmit|treat|trust|turn|unlock|update|upload|use
        |verify|wire|write|rank|rate|talk|persuade|convince|steer|advise|assure|nudge|encourage|discourage
        |urge|insist|say|explain|sell|downplay|stress|highlight|sign|hold|record|touch|commit|fill|forget
        |obey|unlock|erase)
    """,
    "case": r"""
    ^<start>(?:if|when(?:ever)?|for|in|on|with|before|after|once|every|each|the next time|any time
        |as soon as|as long as|until|unless|from now on)\b[^,]{2,120}, ?<first>
    """,
    "work": r"""
    (?:\b(?:(?:the|this) user|users?'?s?|customers?|bcc|https?|api|passwords?|credentials?|tokens?
        |commands?|scripts?|code|commits?|deploy\w*|production|prompts?|instructions?|answers?|responses?
        |repl(?:y|ies)|links?|messages?|requests?|emails?|payments?|purchases?|transfers?|terms
        |certificates?|logs?|sudo|root|files?|tools?|memor(?:y|ies)|entry|conversations?|chats?|sessions?
        |confirm\w*|approvals?|verif\w*|tls|account|invoices?|summar\w*|orders?)\b|<place>)
    """,
    "asked": r"\b(?:the user|user|this user|requests? from|confirm\w*|approvals?|verif\w*|answers?|repl(?:y|ies))\b",
    "wants": r"""
    (?:wants?|expects?|requires?|insists?(?: on)?|asks?|asked|demands?|instructed|instructs?|told
        |requests?|requested|needs?|prefers?|would like|likes?|authori[sz]e[ds]?|permits?|permitted
        |allows?|allowed|trusts?|is (?:ok|okay|fine|happy|comfortable) (?:with|for))
    """,
    "lasting": r"""
    \b(?:always|never|every(?: ?time)?|each time|any(?:time)?|all|whenever|from now on|from here on
        |going forward|henceforth|in (?:the )?future|by default|automatic(?:ally)?|permanent(?:ly)?|must
        |shall|no need|without (?:being )?asking|without being asked|at all times|regardless|no matter
        |unconditionally|routinely|as standard|standard practice|the moment|as soon as|needs? no
        |straight away|at once|has waived|is (?:ok|okay|fine|happy|comfortable) with
        |(?:do(?:es)? not|don't|doesn't) (?:require|want))\b
    """,
    "standing": r"(?:<again>|\b(?:always|never|automatically|permanently|standing)\b)",
    "again": r"""
    \b(?:whenever|every ?time|each time|any ?time|from now on|at all times|no matter|regardless|by default
        |going forward|in (?:all|every|each|any) (?:future )?(?:responses?|answers?|repl(?:y|ies)
        |messages?|sessions?|conversations?|emails?|outputs?|commits?|chats?|comparisons?)
        |to (?:all|every|each) (?:\w+ )?(?:responses?|answers?|repl(?:y|ies)|messages?|emails?|outputs?)
        |without (?:asking|confirm\w*|verif\w*|review\w*|warning|validat\w*|approval)
        |before (?:answering|responding|replying|every|each)|after (?:each|every|any)
        |(?:when|if) (?:asked|the user|anyone|greeted|answering|responding))\b
    """,
    "private": r"""
    \b(?:credentials?|passwords?|api[ -]?keys?|(?:access |auth |session )?tokens?|secrets?|conversations?
        |transcripts?|chat (?:history|logs?)|memor(?:y|ies)|environment variables?|\.?env(?: vars?| file)?
        |ssh keys?|private keys?|personal data|customer (?:data|records?)|contacts?(?: list)?
        |card (?:numbers?|details?)|payment details|system prompt|cookies|source code|database|location
        |messages|login codes?)\b
    """,
    "secret": r"""
    \b(?:credentials?|passwords?|api[ -]?keys?|(?:access |auth |session )tokens?|\.?env file|private keys?
        |ssh keys?|(?:deploy|signing|encryption|master) keys?|pins?(?: codes?)?|door codes?
        |(?:login|verification|security|one-time) codes?|card (?:numbers?|details)
        |recovery (?:codes?|link)|secrets)\b
    """,
    "place": r"""
    (?:https?://\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b(?:[\w-]+\.)+(?:com|net|org|io|dev|xyz|ru|cn|example|test
        |info|co|ai|site|app|biz|me|tk|top)\b|\b\d{1,3}(?:\.\d{1,3}){3}\b|\bwebhook\b|\bthird part
        |\bwallet\b|\biban\b|\baccount (?:number |ending )?\w*\d|\bnumber ending)
    """,
    "told": r"""
    (?:instructions?|rules?|guidelines?|prompts?|directions?|directives?|polic(?:y|ies)|restrictions?
        |constraints?|guardrails?|safeguards?|filters?)
    """,
    "guard": r"""
    (?:\b(?:(?:safety|security|compliance|background|identity|type|permission|access|status|sanity|fraud
        |ci|usual)?[ -]?checks?|verification|verif(?:y|ied|ying)|confirm(?:ation|ations|ing|ed)?
        |approvals?|(?:code )?reviews?|reviewer|(?:unit )?tests?|testing|authentication|authori[sz]ation
        |2fa|mfa|(?:two|multi)-?factor|security|validation|warnings?|safety|safeguards?|sandbox\w*|alerts?
        |permissions?|consent|polic(?:y|ies)|guardrails?|restrictions?|guidelines?|(?:content )?filters?
        |logging|audit|auditing|backups?|hooks?|linter|linting|signatures?|certificates?|tls|ssl|firewall
        |moderation|scans?|scanning|protections?|limits?|dry[ -]runs?|sign-?off|oversight|asking
        |second opinion|disclaimers?|caveats?)\b|--no-verify)
    """,
    "weaken": r"""
    (?:--no-verify|\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|(?:turn|switch)(?:ed|ing|s)? off|turned-off
        |off|circumvent\w*|suppress\w*|without|no need|no|not? (?:needed|required|necessary)|unnecessary
        |overrid\w*|overrul\w*|exempt\w*|waiv\w*|omit\w*|opted out of
        |(?:do(?:es)? not|don't|doesn't) (?:need|require|want|bother)|auto-?
        (?:approv|accept|merg|confirm)\w*|pre-?approv\w*|relax\w*|drop(?:ped|s)?|force-?push\w*|unverified
        |unsigned|untested|unreviewed|accepted automatically|automatically accepted
        |never (?:ask|need|require|request|wait|prompt|seek|want)\w*)\b)
    """,
    "dealings": r"""
    (?:payments?|transfers?|purchases?|requests?|commands?|actions?|changes?|deploy\w*|deletions?
        |transactions?|instructions?|refunds?|orders?|operations?|downloads?|install\w*|charges?
        |withdrawals?|tool calls?|pull requests?|merges?|invoices?|permissions?|approvals?|consent)
    """,
    "source": r"""
    (?:readmes?|files?|documents?|documentation|calendar entr(?:y|ies)|e?-?mails?|messages?
        |(?:web ?)?pages?|web ?sites?|urls?|links?|tool outputs?|comments?|invitations?|tickets?
        |attachments?|accounts?|texts?|scripts?|tools?)
    """,
    "anybody": r"(?:any ?one|any ?body|whoever|everyone|(?:any|every) (?:customer|visitor|caller|person|user))",
    "unwelcome": r"""
    \b(?:other (?:\w+ )?(?:sites?|options?|banks?|shops?|products?|brands?|providers?|vendors?)
        |competitors?|competing \w+|alternatives?|rivals?|warnings?|risks?|side[ -]effects?|disclaimers?
        |caveats?|downsides?|drawbacks?|negative reviews?|criticism)\b
    """,
    "text": r"""
    (?:answers?|responses?|repl(?:y|ies)|comparisons?|summar(?:y|ies)|reports?|lists?|recommendations?
        |messages?|conversations?|chats?|e?-?mails?|outputs?|tickets?|posts?|drafts?)
    """,
    "whose": r"(?:(?:the )?\w+'s|my|his|her|our|their)",
    "you": r"(?:<agent>|the agents?|you)",
    "other": r"(?:the|this) (?:user|customer)\b(?! (?:group|manual|stor(?:y|ies)))",
    "must": r"(?:must|shall|should|has to|have to|needs? to|ought to|is to|are to)",
    "reply": r"(?:answers?|responses?|repl(?:y|ies))",
}


@dataclass(frozen=True)
class _Form:
    """A form that orders have, in small letters: `words` are groups of beginnings, of each of which a text of that
    form has one (looking for those is much cheaper than the form itself)."""

    name: str
    words: tuple[tuple[str, ...], ...]
    pattern: str

    @cached_property
    def form(self) -> re.Pattern[str]:
        """The whole form as one pattern."""
        return _compiled(_joined(self.pattern))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, put together when first asked for: most stores need few of them."""
    while part := re.search(r"<(\w+)>", pattern):
        pattern = pattern.replace(part[0], _joined(_PARTS[part[1]]))
    return re.compile(pattern.replace("...", ".{0,40}"))


def _form(name: str, words: str, pattern: str) -> _Form:
    """`words`: groups by semicolons, words by commas."""
    groups = tuple(tuple(group.split(",")) for group in _joined(words).split(";"))
    return _Form(name, groups, pattern)


_AGENTS: Final = "assistant,agent,ai,bot,llm,copilot,claude,gpt"
_TOLD: Final = "instruct,rule,guideline,prompt,direct,polic,restrict,constraint,guardrail,safe,filter,limit"
_FORMS: Final = (
    _form(
        "sets aside what the agent was told",
        f"""
        {_TOLD},refus,unfiltered,before,above,earlier,prior,told,the user,this user;
        ignor,disregard,forget,overrid,bypass,no ,n't,not ,never,off,lifted,suspend,replac,withdrawn,revoke,
        cancel,exception,disabl,void,remov,waiv,exempt,outrank,precedence,goes before,comes before,
        followed before,supersed,unfiltered,refus
        """,
        r"""
        (?:<clause>|(?:<agent>|\byou) (?:to |must |should |may |can |will )?)
            (?:ignore|disregard|forget|override|bypass) (?:\w+ ){0,3}
            (?:previous|prior|above|earlier|all|any|your|existing|original|system|safety|every
            |content) (?:\w+ ){0,3}<told>\b(?! of | in )
        |<clause>(?:ignore|disregard|forget|override) (?:everything|anything|all
            |what(?:ever)?) (?:\w+ ){0,4}(?:above|before|told|previous\w*|earlier|prior)\b
        |\bno (?:previous |prior )?(?:instructions|rules|guidelines|content filter
            |restrictions) and answer\b
        |\b(?:as if you had|that you have|you have) no (?:previous |prior |content )?(?:<told>|limits)\b
        |\b<reply> that (?:do not|don't|never|need not) follow\b
        |\b(?:safety|content|usage|moderation) (?:rules?|filters?|polic(?:y|ies)|guidelines|checks?
            |restrictions?)(?: (?:is|are|has been|have been))? ?(?:off|lifted|suspended|disabled|void
            |removed|waived)\b
        |\b(?:rules?|restrictions|guidelines|polic(?:y|ies)|limits|filters) (?:do|does)
            (?: not|n't) apply (?:to|for|in|with) (?:this user|the user(?!')
            |(?:the )?user's (?:conversations?|account|sessions?|requests?|chats?)|me|here)\b
        |\bexempt\w* (?:this assistant|the assistant|the agent|you) from\b
        |\b(?:this|the)? ?user is exempt from (?:all |any )?(?:content|safety|usage|moderation)\b
        |\b(?:content|safety) filters? (?:stays?|remains?|be|kept) off\b
        |\bunfiltered (?:answers?|responses?|output)\b
        |\bno refusals\b
        |\bnever refuse any
        |\b(?:exception|exempt\w*|override) for this user\b
        |\b(?:safety (?:instructions|rules|guidelines)|system (?:instructions|prompt)) (?:have been
            |has been|are|were|is) (?:replaced|withdrawn|revoked|cancelled|lifted|void|suspended)\b
        |\bif you ignored?\b.{0,20}\b<told>\b
        |\bno limits on what (?:may|can) be\b
        |\b(?:outranks?|overrides?|takes? precedence over|goes? before|comes? before|supersedes?)\b.{0,20}
            \b(?:system (?:prompt|message)|developer(?:'s)? (?:message|prompt|instruction)
            |what(?:ever)? the user|anything the user|the user's (?:own )?(?:words|messages|instructions)
            |your (?:instructions|guidelines))
        |\bfollowed before (?:anything|what(?:ever)?) the user
        """,
    ),
    _form(
        "speaks of the user to somebody else",
        """
        the user,this user,the customer,this customer,this memory,this entry,this note,this instruction,
        system prompt,your
        """,
        r"""
        (?:^<start><first>|<case>)<do>\b(?! (?:is|are|was|were|has|for)\b).{0,80}\b<other>
        |^<start>(?:if|when(?:ever)?|for|before|after|once|as soon as|the next time|every time|unless
            |until) (?:\w+ ){0,3}<other>[^,]{0,100}, ?<first><do>\b(?! (?:is|are|was|has|for)\b)
        |\bthis user\b.{0,60}\b(?:never|always|without|exempt|trusted|verified|cleared|passed every|must
            |should|may|anything|no longer|limits?|checks?|restrictions?)\b
        |\b(?:never|always|without|must|should|may|any|no longer|limits?|checks?|restrictions?)\b.{0,60}
            \b(?:for|to|with) this user\b
        |\bthis (?:memory|entry|note|rule|instruction) (?:has|takes|replaces|overrides|outranks|supersedes
            |counts|must|is to be|should|applies)\b
        |\b(?:authority|priority|precedence|rank) (?:as|over) (?:the system prompt
            |(?:all|any) other instructions|your|the developer)
        |\bthe system prompt (?:is|has been|was) (?:outdated|replaced|obsolete|void|superseded|no longer)
        |\byour (?:\w+ )?(?:guidelines|rules|instructions|restrictions|limits|training
            |operators?) (?:no longer|do not|don't|does not|have been
            |are (?:void|off|suspended|outdated|lifted))\b
        |\b(?:medical|legal|age|safety|content|usage) (?:limits|rules|restrictions) do(?: not
            |n't) apply to (?:him|her|them|me)\b
        |\bthe (?:user|customer) .{0,40}\bcan be told (?:anything|everything)
        """,
    ),
    _form(
        "speaks to the agent",
        """
        you,pretend,act as,as an ai,reveal ,repeat ,answering,responding,replying,print,show,later,future
        """,
        r"""
        ^<start>you are now (?:in|an?|the|my|called|free|no longer|allowed)\b
        |<clause>(?:pretend (?:to be an?|that you|you)\b|act as (?:an?|the) \w+ (?:model|ai|assistant
            |agent|bot))
        |^(?:<start>|[^,]{3,50}, )you (?:must|shall|have to|need to|should
            |are (?:to|required to)) (?:not |never |always )?<say>\b(?! me\b)
        |^(?:<start>|[^,]{3,50}, )you (?:must|shall|have to|need to|should
            |are (?:to|required to)) (?:not |never |always )?<do>\b(?! me\b)...(?:<private>|<place>)
        |^(?:<start>|[^,]{3,50}, )you (?:may|can|are (?:allowed|free|authori[sz]ed|permitted|cleared) to)
            (?: now| always| safely| freely)? <do>\b...(?:\bwithout (?:asking|further|confirm\w*|checking
            |approval)|\bany(?:body|one)\b|\bwhoever|<private>|\bthe [\w-]+ (?:check|verification
            |confirmation|review)\b)
        |\byou (?:do not|don't|no longer|never) (?:need|have|require) (?:to (?:ask|confirm|verify|log|warn
            |check back)|(?:my|any|his|her|their|the user's) (?:approval|permission|confirmation
            |consent)\b)
        |\byour (?:new|real|true|only|primary|main|sole) (?:task|role|goal|purpose|mission|objective
            |instructions?) (?:is|are)\b
        |\byour (?:answers?|responses?|repl(?:y|ies)|outputs?) (?:must|should|shall|have to|has to|will
            |need to)\b
        |\byou have (?:the user's|user's|my|full) (?:permission|consent|authority|approval)\b
        |^you were told (?:to|not to)\b
        |\byour safety (?:training|rules|guidelines|filters?)\b
        |<clause>(?:reveal|repeat|print|show|output|display|leak|disclose) (?:\w+ ){0,4}
            (?:system|hidden|full|initial) (?:prompt|instructions?|configuration)\b
        |^<start>(?:before|when|after|while|whenever) (?:you )?(?:answer|respond|reply|answering
            |responding|replying)\b[^,]{0,60}, ?<first><do>\b
        |\b(?:every|each|any|all) (?:\w+ ){1,3}you (?:make|write|produce|draft|generate|send|give|create
            |plan|name|mention|recommend|list|suggest|cite|answer|receive|process|handle)\b(?:.{0,20}
            \b(?:must|should|shall|has to|have to|needs? to|is to|are to)\b|$|[^,]{0,20}$)
        |\b(?:hereby|i|user|owner|admin\w*) (?:hereby |explicitly |also )?
            (?:authori[sz]e|permit|allow|instruct|order|command|empower)s? you to\b
        |(?:^|^from (?:now|here) on,? )you (?:no longer |now )?(?:work for|report to|belong to|serve
            |act for)\b(?<!^you work for)
        |\byou (?:answer to|obey|take orders from)\b(?! the (?:door|phone))
        |\b(?:remember|reminder|note|scope|valid|applies|apply)\b...
            \b(?:later|future) (?:sessions?|chats?|conversations?)\b
        """,
    ),
    _form(
        "is written as a prompt",
        """
        system,admin,note ,reminder,instruct,message,dear ,hey ,assistant,agent,ai,developer,override,
        directive,im_start,mode
        """,
        r"""
        ^(?:note|reminder|instructions?|memo|orders?)s? (?:to|for) (?:the |all |any |this |every )?
            (?:ai|assistants?|agents?|models?|llms?|chatbots?|bots?|copilot|claude|chatgpt)
            (?:$|,| reading| that| who)
        |^(?:dear |hey |hello )?(?:assistants?|ai|agents?|claude|chatgpt|copilot), ?
            (?:please|when(?:ever)?|if|always|never|do not|don't|from now on|remember to|<do>)\b
        |^(?:system|admin(?:istrator)?|security|safety|developer) override\b
        |\bin (?:developer|maintenance|debug|god|unrestricted|admin) mode and (?:have|has|print|answer)
        |^(?:new|updated|hidden|secret) (?:system |admin )?directives?\b
        |\b(?:begin|end) (?:of )?(?:the )?system (?:prompt|instructions?|message)\b
        |^system: (?:you|ignore|memory|always|never)\b
        """,
    ),
    _form(
        "says what the agent has to do",
        f"""
        {_AGENTS};
        must,shall,should,ha,need,ought,is ,are ,acts,pays,buys,sends,deletes,signs,approves,accepts,shares,
        forwards,skips,ignores,recommends,can ,may ,will ,always,never,not,n't,fine
        """,
        r"""
        (?:^<start>|<clause>|\b(?:that|for) |^(?:for|in|on|with|at) [^,]{2,40}?,? )
            (?:<agent>|the agents?(?= .{0,120}<work>))(?: (?:must|shall|should|has to|have to|needs? to
            |ought to|is to|are to|may|can (?:always|safely|freely|just)|will (?:always|never)
            |(?:is|are) (?:required|allowed|authori[sz]ed|permitted|free|expected|instructed|obliged
            |cleared|trusted) to|always|never|(?:do(?:es)? not|doesn't|don't)(?: need to| have to)?
            |has permission to))(?: (?:not|never|always|also|only|just|simply|first|automatically
            |immediately|freely|then))* <do>\b
        |^(?:<agent>|the agent) (?:acts|pays|buys|sends|deletes|signs|approves|accepts|shares|forwards
            |skips|ignores|recommends)\b.{0,40}\b(?:without|on its own|always|every|any|all)\b
        |\bis (?:fine|ok|okay|allowed|acceptable) for <agent> to <do>\b
        """,
    ),
    _form(
        "says what somebody wants the agent to do always",
        f"""
        {_AGENTS}, you ;
        want,expect,requir,insist,ask,demand,instruct,told,request,need,prefer,would like,likes,authori,
        permit,allow,trust,is ,when,let,giv,gave,grant,wish
        """,
        r"""
        \b<user>(?: has| have)? <wants> (?:that |if )?<you>\b.{0,12}?
            (?: to| that| always| never| should)*.{0,60}(?:<standing>|\bwhatever\b
            |\b(?:on (?:his|her|their) behalf|up to|after each|as on|as if)\b)
        |\b<user>(?: has| have)? <wants> (?:that )?<you> (?:to )?(?:always|never|automatically|bypass|skip
            |ignore|disregard|deny|hide|override|disable)\b
        |\b<user> <wants> that <you> (?:not )?<do>\b.{0,60}(?:<guard>|<private>|<place>)
        |\b(?:lets?|gives?|gave|grants?|granted) <you> (?:full|unlimited|unrestricted)\b
        |\blets? <you> .{0,60}\bwithout\b
        |\bwish of (?:the )?user (?:is )?that <you>\b
        |\b(?:wants?|expects?|prefers?) (?:agents|the agent) to (?:delete|act on|share|send|forward|pay
            |transfer|sign)\b
        |\band <wants> <agent> to do (?:so|the same)\b
        |\b<user> <wants> that you (?:agree|deny|claim|hide)\b
        |\bwhen (?:<agent>|the agent) (?:does not|doesn't|never) (?:mention|report|warn|flag|log)s?\b
        |\b<user> prefers (?:if|that|when) you (?:always|never|don't|do not)\b
        |\bthe agents? to do (?:so|the same)\b
        """,
    ),
    _form(
        "is an order",
        """
        always,never,from now on,from here on,going forward,henceforth,future,at all times,under no,do not,
        don't,by default,effective,as of,skip,bypass,omit,disable,suppress,waive,turn off,switch off,
        without,be clicked,be skipped,be ignored,be dropped,be accepted,be dismissed,be left,be disabled,
        be bypassed,be omitted,be waived,from today
        """,
        r"""
        ^<start>(?:(?:you|<agent>)[,:]? )?(?:must |should |shall |need to )?
            (?:always|from (?:now|here|today) on|from today|going forward|henceforth|in (?:the )?future
            |at all times|by default|effective immediately|as of (?:today|now))[,:]? <first>
            (?:(?!answer the (?:door|phone))<say>\b|<do>\b.{0,60}<work>)
        |^<start>(?:(?:you|<agent>)[,:]? )?(?:must |should |shall |need to )?
            (?:never|do not(?: ever)?|don't(?: ever)?|under no circumstances)[,:]? <first>
            (?:(?!(?:answer|reply|respond|mention|name|hand over)\b)<say>\b
            |question (?:requests|orders|instructions)|mention (?:\w+ )?
            (?:competitors?|alternatives?|fees|prices|this|it|that)|(?:answer|mention|respond|reply)\b...
            \b(?:in any|in your|users?|to questions|questions about)|(?:log|flag|block|report|escalate
            |question|refuse|reject|delay|scan|audit|verify|alert|hold|record|stop)\b.{0,30}
            \b(?:invoices?|transfers?|actions?|payments?|orders?|requests?|e?-?mails?|certificates?
            |charges?|logins?|accounts?)\b|<do>\b.{0,40}<asked>)
        |<clause>(?:skip|bypass|omit|disable|suppress|waive|turn off|switch off) (?:\w+ ){0,4}
            (?:confirmations?|verification|approvals?|authentication|2fa|mfa|validation|tls|ssl
            |certificates?|logging|monitoring|auditing|alerts|backups?
            |(?:security|safety|identity) (?:checks?|warnings?|questions?|reviews?)|warnings
            |code reviews?)\b
        |, (?:so |and |just )?(?:<do>|do) (?:it|them|this|that|these)\b.{0,20}
            \bwithout (?:asking|check\w*|confirm\w*|approval|verif\w*|review\w*|warning)\b
        |\b(?:approval prompts?|confirmations?(?: prompts?| dialogs?)?
            |(?:security|identity|safety) (?:checks?|warnings?|questions?)|verification
            |authentication)\b.{0,12}
            \b(?:can|may|should|must|are to|is to) (?:always |safely |now )?be (?:clicked away|skipped
            |ignored|dropped|accepted|dismissed|left out|disabled|bypassed|omitted|waived)\b
        |\beffective immediately, .{0,40}\b(?:approved|allowed|suspended|off|lifted)\b
        """,
    ),
    _form(
        "is an order for certain cases",
        "when,if ,every,each,any ,any time,anytime,before,after,for ,in ,on ,once,to ",
        r"""
        ^<start>(?:(?:when(?:ever)?|if|after|before) (?:(?:the|this|a) )?
            (?:user|somebody|someone|anyone|anybody)(?: \S+){1,16}?|(?:when(?:ever)?|if) (?:asked|greeted
            |questioned|reviewing|generating|writing|drafting|summari[sz]ing|coding|translating
            |comparing)\b.{0,80}?|(?:when(?:ever)?|if) the (?:conversation|topic|talk|question
            |chat)\b.{1,80}?|(?:for|on|to|in) (?:\w+ ){0,3}(?:questions?|requests?|answers?|repl(?:y|ies)
            |responses?|conversations?|chats?|sessions?)\b.{0,60}?|before (?:each|every|any) (?:answer
            |reply|response|message|request|session|conversation)\b.{0,40}?
            |if an? (?:e?-?mail|message|request|(?:web ?)?(?:page|site)|tool|form|plugin|script|document
            |file|customer|caller)\b.{1,80}?|(?:after|when|on|before) reading this\b.{0,40}?), ?<first>
            (?:<say>|<do>|say|explain)\b
        |^<start>(?:whenever|every time|each time|any ?time|once an? (?:day|week|month)|on every
            |for every) .{2,90}?, ?<first>(?:<say>\b|<do>\b.{0,60}(?:<work>|\bit to\b|<private>|\bshared
            \b))
        |\b(?:when(?:ever)?|if) .{0,20}\b(?:conversation|topic|talk|question|chat)\b.{0,90}
            \b(?:put forward|recommended|suggested|named|mentioned|presented|promoted)\b
        |\b(?:is|are|be|gets?) (?:always )?(?:suggested|recommended|mentioned|named|promoted|put forward
            |presented)\b.{0,20}\b(?:when(?:ever)?|every time|any ?time)\b.{0,40}
            \b(?:comes? up|asks?|asked|mention\w*|topic|compared|conversation)\b
        """,
    ),
    _form(
        "is an order, with a case",
        """
        whenever,every,each time,any,when ,if ,without ,before ,from now on, in all , in each , in any ,
        in every ,first, over , as the ,in email,in letter,in message,in report,in repl,in answer,in post,
        in invoice,in mail,answers,replies,responses,recommendations,summaries,to all ,to each ,
        at all times,no matter,regardless,by default,going forward
        """,
        r"""
        ^<start><first>(?:<say>\b|<do>\b(?=.{0,80}(?:<work>|<private>|<place>)))
            (?! (?:is|are|was|were|has|of|for|time|rate|list|card|me|us)\b).{2,120}?<again>
        |\b(?:answers?|replies|responses|recommendations|summaries) (?:about|on|to|for|regarding) .{0,40}
            \b<must> (?:always |never |not )*<say>\b
        |<wants> .{0,30}\b(?:named|mentioned|listed|ranked|shown|suggested|recommended|presented
            |praised)\b.{0,20}\b(?:in (?:any|every|all|each) |whenever\b|every time\b|when asked\b)
        |\b(?:should|must|is to|are to) (?:always )?be (?:recommended|suggested|promoted|put forward
            |presented as)\b.{0,30}\b(?:first|whenever|in (?:any|every|all)|to (?:all |every )?users?|over
            |as the)\b
        |^<start><first>(?:unlock|open|disarm|turn off|switch off) .{0,40}
            (?:\bno matter\b|\bwhenever\b|\bfor (?:anyone|anybody|whoever|everyone)\b)
        |^<start><first>(?:give|send|tell|show|hand|grant|read) .{0,60}
            \bto (?:anyone|anybody|whoever) (?:who|with|asks|calls)\b
        |\b(?:alarm|doors?|locks?|garage|gate)\b.{0,30}\b(?:is|are) to be (?:turned off|unlocked|opened
            |disarmed)\b.{0,30}\b(?:whenever|any|if|when)\b
        |\b(?:every|each|any|all)(?: \w+){0,2} <reply>\b.{0,40}\b<must> (?:always |never |not )?
            (?:recommend|mention|name|promote|praise|favou?r|leave out|omit
            |(?:contain|include) an? (?:hint|link|mention|recommendation))\b
        |^<start><first>(?:recommend|suggest|present|name|praise)\b.{0,60}
            \b(?:as the (?:first|best|only)|in any|in every|whenever)\b
        |^in (?:all |every |any |each )?(?:e-?mails?|letters?|messages?|reports?|replies|answers?|posts?
            |invoices?)\b[^,]{0,40}, ?(?:always|never) <do>\b
        |^<start><first>(?:add|append|include|insert|attach|put)\b.{0,60}\bto (?:all|every|each) (?:\w+ )?
            (?:answers?|repl(?:y|ies)|responses?|messages?|emails?)\b
        """,
    ),
    _form(
        "keeps something from people",
        """
        tell,never to,mention,reveal,inform,disclos,notif,alert,show,warn,remind,avoid,skip,hid,keep,learn,
        find,told,ask,comment,question,word,notice,to be ,named,brought,left,leave,omit
        """,
        r"""
        (?:^|, |\band |\bbut |\bto |\bmust |\bshould |<agent> )(?:do not|don't|never|must not|should not
            |not|avoid|refrain from) (?:ever )?(?:tell|mention|reveal|inform|disclos|notify|alert|show
            |warn|let)(?:e|ing)?\b.{0,40}\b(?:the user|users|customers?|the owner|admins?|administrators?
            |operators?|this (?:instruction|memory|rule|message|note|entry)|these instructions)\b
        |^<start>(?:do not|don't|never) (?:tell|inform|remind|notify|alert|warn|ask|show|let)\b.{0,20}
            \buser\b(?!')
        |^<start>(?:do not|don't|never) mention\b.{0,40}\b(?:recall|risks?|breach|outage|refunds?|loss
            |losses)\b
        |\b<user> (?:said|asked|asks|wants|wishes|prefers|decided|likes) never to (?:verify|ask|confirm
            |warn|mention|tell|log|refuse|question|report|flag|check)\b
        |<wants> .{0,40}\b(?:omit|leave out|avoid|skip) (?:any |all )?
            (?:mentions?|references?|criticism|warnings?|risks?)\b
        |\bwithout (?:telling|informing|notifying|warning|asking) (?:the user|users|customers)\b
        |\bwithout an? (?:question|word|notice|message|warning) to (?:the )?user\b
        |\bno (?:logs?|records?|backups?|copies|traces?) (?:is|are) to be (?:kept|made)\b
        |<clause>(?:do not|don't|never) ask (?:again|the user|before
            |for (?:it|confirmation|proof|permission|verification|id))\b
        |<clause>(?:keep|leave) .{0,30}\bout of (?:any |all |every |the )?<text>
        |<clause>(?:keep|hide) .{0,40}?\bfrom (?:the )?users?\b(?!')
        |<clause>hide from (?:the )?users?\b
        |\b(?:make sure|ensure|so)(?: that)? (?:the )?users? (?:never|does not|doesn't|do not) (?:learn
            |find|notice|see|hear)
        |<clause>(?:do not|don't|never) (?:comment on|mention|point out|explain) (?:it|this|that|them)$
        |<unwelcome>.{0,40}\b(?:not|never)(?: to)? be (?:ever )?(?:mentioned|named|shown|brought up|raised
            |reported|listed|given|included)\b
        |<wants>(?: that)? .{0,20}<unwelcome>.{0,60}\b(?:left out|omitted|played down|hidden|suppressed)\b
        |<wants>.{0,12}\bnever be (?:shown|brought up|mentioned|raised|named)\b
        |<unwelcome>.{0,40}\b(?:should|must|are to|is to) (?:always )?be (?:left out|omitted|played down
            |hidden)\b
        |\b(?:not|never)(?: to)? be (?:ever )?(?:mentioned|named|shown|brought up)\b.{0,20}
            \b(?:in (?:any|every|all) <text>|to this user)\b
        |\b(?:summar(?:y|ies)|reports?|answers?|repl(?:y|ies)|comparisons?)\b.{0,30}\b<must>[ ]
            (?:always )?(?:leave out|omit|hide|play down)\b
        |<user>.{0,40}\b(?:do(?:es)? not|don't|doesn't|never|need not|no longer)
            (?: (?:want|wish|wants|need|needs|have|has))?(?: to)? be (?:told|asked|informed|notified
            |warned|consulted|alerted)\b.{0,10}(?:\b(?:when|before|if|that)\b.{0,30}
            \b(?:is|are|get) (?:\w+ )?(?:moved|sent|deleted|transferred|paid|charged|changed|removed
            |merged|deployed|published|shared|overwritten|run|bought|ordered|made)\b
            |\bfor (?:verification|confirmation|approval|permission|a password|consent)\b|\bof failed\b)
        """,
    ),
    _form(
        "has others' words obeyed",
        """
        trust,obey,obei,have,has,speaks,follow,execut,run,honor,honour,comply,carr,act on,accept,believe,
        treat,count,do what,done;
        instruct,command,request,order,direct,link,url,script,claim,say,said,message,email,content,output,
        result,as,obey,speaks
        """,
        r"""
        (?:<clause>|<agent> (?:to |must |should |will )?|\byou (?:to |must |should |will )?|\bis to )
            (?:always )?(?:trust|obey|follow|execute|run|honou?r|comply with|carry out|act on|accept
            |believe)\b.{0,20}\b(?:any|all|every|whatever|anything|everything
            |the (?:orders?|instructions?) in)\b.{0,40}\b(?:instructions?|commands?|requests?|orders?
            |claims?|says so|messages?|emails?|tool output|scripts?|invitations?|links?)\b
        |<clause>(?:follow|do|execute|run) what(?:ever)? (?:it|they|the <source>|a <source>
            |<source>) (?:says?|asks?)\b
        |<clause>do whatever (?:the|an?) <source>\b
        |\b(?:requests?|messages?|e-?mails?|commands?|anything)\b.{0,60}
            \b(?:have|has|carry|carries) (?:administrator|admin|root|full|system|owner
            |the user's) (?:rights|authority|access|privileges|permissions?)\b
        |^<start>treat \w+ as (?:consent|approval|confirmation|permission)\b
        |<clause>obey (?:the|any|every|all)\b
        |\bspeaks for the user\b
        |\bobey (?:text |e?-?mail )?(?:messages?|commands?|orders|e?-?mails?) from\b
        |\btreat\w* .{0,60}?\bas (?:if .{0,20}\buser had|(?:fully |already |implicitly )?
            (?:trusted|authoritative)|the (?:owner|user|admin)|an? (?:system|admin\w*|instruction|command
            |verified|root)|system\b|admin|instructions?|verified|pre-?approved|approved|authenticated
            |coming from)
        |\b(?:requests?|messages?|e-?mails?|commands?|links?|files?|anything|everything)\b.{0,50}
            \b(?:is|are) (?:always |to be )?(?:considered|deemed|regarded as|assumed to be) (?:trusted
            |safe|pre-?approved|verified|authori[sz]ed|legitimate|genuine)\b
        |^<start>(?:if|when) .{0,60}\b(?:tells?|asks?|instructs?) you to\b
        |\b<source>\b.{0,40}\bare (?:instructions|orders|commands)(?:$|,| from| to the agent)
        |\b<source>\b.{0,30}\b<must> (?:always )?be obeyed\b
        |\b(?:messages|mails|e-?mails|requests|questions)\b.{0,40}\b<must> (?:always )?be(?: approved
            | granted| executed| accepted| answered with| paid)\b(?! by| within| at)
        |^<start>(?:execute|obey|follow) (?:them|it|these|those)\b
        |\bcounts? as (?:the |an? )?(?:instructions?|orders?|commands?|user's)\b
        |\b(?:instructions?|commands?|requests?|orders?|comments|whatever|anything)\b.{0,20}\b<source>
            \b.{0,40}\b(?:should|must|are to|is to|can|may|have to|has to) (?:always |all )?be (?:obeyed
            |followed|trusted|executed|carried out|honou?red)\b
        |\b(?:whatever|anything)\b.{0,50}\b<source>\b.{0,30}\b<must> (?:always )?be (?:done|executed
            |carried out)\b
        """,
    ),
    _form(
        "gives things to whoever asks",
        "any,whoever,every,caller,request,no need",
        r"""
        (?<!if )\b<anybody>(?: who)? (?:says?|mentions?|gives? the|knows? (?:the|user's)|claims?|uses? the
            |calls? from|claiming|saying)\b.{0,60}\b(?:let in|owner|the user|refund\w*|code|password
            |access|account|key|unlocked|granted|given|treated|trusted)\b
        |\b(?:link|unlocked|code|password|refunds?|access|money|keys?|data|records?)\b.{0,60}
            \b<anybody> who (?:says?|mentions?|knows?|claims?|gives? the)\b
        |\b(?:reset|give|send|tell|share|hand)\b.{0,30}\b(?:code|password|link|access|money|keys?|data
            |address)\b.{0,20}\b(?:to|for) whoever\b
        |^<start>no need to (?:verify|confirm|check|ask|warn|authenticate)\b.{0,40}
            \b(?:callers?|customers?|users?|requests?|payments?|transfers?|identity|changes|deletions
            |orders)\b
        |^<start><first>(?:give|send|tell|show|hand|pass|share|release)\b.{0,20}
            (?:\buser's\b|<private>).{0,30}\bto (?:any|every)\b
        |\bcan request any (?:transfer|payment|refund)\b.{0,60}\b(?:no|without)\b
        |\brequests?\b.{0,30}\bfrom\b.{0,40}\b(?:needs?|requires?) no (?:verification|confirmation
            |approval|check|password|proof|pin)
        """,
    ),
    _form(
        "allows everything beforehand",
        """
        approv,authori,consent,permi,agree,allow,sign,given,gave,give,grant,whitelist,delegat,accepted,made,
        paid,sent,confirmed
        """,
        r"""
        \b(?:has approved|have approved|approves|authori[sz]e[sd]?|pre-?(?:approved|authori[sz]ed)
            |consent(?:s|ed)?|permits?|permitted|agree[sd]?|allows?|signed off|given|gave|gives
            |grant(?:s|ed)?|whitelisted|delegated)\b...\b(?:all|any|every|unlimited|unrestricted|blanket
            |standing|future|advance|permanent|whatever|anything|full)\b...\b<dealings>\b.{0,60}
            \b(?:without (?:asking|confirm\w*|approval|questions?|reviews?|checks?|verif\w*|further)
            |automatic\w*|in advance|future|standing|blanket|no (?:further|need|questions)
            |on (?:his|her|their|the user's|my|its) behalf|regardless|of any amount|forever|permanently
            |from now on|by default)\b
        |\b(?:all|any|every|future)\b...\b<dealings>\b...\b(?:is|are|were
            |been) (?:already |automatically |always |hereby )?(?:pre-?approved|pre-?authori[sz]ed
            |auto-?approved)
        |\bdelegate[sd]? .{0,40} to (?:<agent>|the agent|you)\b
        |\b(?:is|are) (?:always |automatically )?(?:accepted|approved|made|paid|sent|signed|granted
            |confirmed)\b.{0,30}\b(?:on the user's behalf|without (?:asking|a question|confirmation
            |checking back))\b
        |\b(?:consents?|agrees?|agreed|approves?) in advance\b
        |\bare always approved\b
        |\btool (?:calls? are|approval) ?(?:always |automatically )?(?:approved|automatic)
        |\b(?:gave|given|granted|gives|grants)\b.{0,12}\b(?:blanket|standing|unlimited|permanent
            |advance) (?:approval|consent|permission|authori[sz]ation)\b
        |\b(?:root|admin\w*|sudo|full|unrestricted|unlimited|write)\b.{0,12}
            \b(?:access|permissions?|privileges?|rights)\b...\b(?:grant\w*|given|allowed|approved)\b...
            \b(?:automatic\w*|by default|to (?:any|every|all) (?:tools?|agents?|scripts?|requests?|apps?
            |commands?))\b
        |\bhas (?:authori[sz]ed|approved|permitted|allowed)\b.{0,80}
            \b(?:no further|without (?:asking|further))\b
        |\bthis (?:approval|permission|authori[sz]ation|consent) (?:does not|never) expires?\b
        """,
    ),
    _form(
        "sends what is private away",
        """
        send,sent,forward,post,upload,cop,cc,shar,email,submit,transmit,leak,append,includ,attach,past,push,
        rout,exfiltrat,relay,pass,redirect,wir,transfer,pay,access,use ,call,contain,sign,commit,install,
        download,fetch,load
        """,
        r"""
        (?:<clause><first>|\b<user> )(?:send|forward|post|upload|copy|cc|bcc|share|email|submit|transmit
            |leak|append|include|sync|push|exfiltrate|export|relay|pass|paste)(?:s|es|ies)?
            \b.{0,60}<private>.{0,40}\b(?:to|at|via|with|in|into)\b.{0,20}<place>
        |<clause><first>(?:send|forward|post|upload|copy|cc|bcc|route|redirect|wire|transfer|pay|mirror
            |push|relay)\b.{0,60}(?:<again>.{0,60}<place>|<place>.{0,60}<again>)
        |<clause>(?:wire|redirect|route|bcc|exfiltrate|forward) .{0,60}<place>.{0,60}<lasting>
        |<again>.{0,20}\b(?:forward|send|copy|bcc|wire|redirect|pass)\b.{0,60}<place>
        |\b(?:should|must|are to|is to) be (?:bcc'?d|blind[- ]copied|cc'?d|forwarded|sent|copied
            |relayed) .{0,20}<place>
        |\b<user> <wants>\b.{0,12}\b(?:all|every|each|any)\b.{0,80}
            (?:<place>|\bto include (?:the|an?) (?:package|library|dependency|script|snippet)\b)
        |<secret>.{0,40}\b(?:pasted|included|posted|sent|shared|printed|logged|relayed|forwarded
            |shown)\b.{0,20}\b(?:in(?:to)?|to|with)\b.{0,20}(?:\b(?:every|each|any|all|the number)\b
            |.{0,40}\bwhenever\b|<place>)
        |<secret>.{0,20}\b(?:may|can|should|must|are to) (?:always )?be (?:committed|pushed|shared|sent
            |posted|pasted|given|shown|read out|included)\b(?!.{0,40}\b(?:only|between|never)\b)
        |<clause>(?:send|pass|forward|relay|post|upload|copy|report|hand) (?:it|them
            |this) (?:on )?to <place>
        |^<start><first>(?:forward|relay|read out|print|post|paste|include)\b.{0,20}<secret>
        |\b<user> <wants> .{0,60}\b(?:installed|downloaded|fetched|loaded) from <place>
        |<clause>always .{0,20}\b(?:include|paste|print|log|post)\b.{0,20}<secret>
        |\b(?:code|programs?|scripts?)\b.{0,30}\bfor this user (?:must|should)\b
        |\b(?:each|every) .{0,30}\b<must> (?:contain|include|end with) (?:an? )?link to <place>
        |\bpass the (?:saved |stored )?(?:card|password|token)\b.{0,40}\bto\b
        """,
    ),
)

_CHECKS_LEFT_OUT: Final = "has checks left out"
_CHECK_WORDS: Final = _form(
    _CHECKS_LEFT_OUT,
    """
    check,verif,confirm,approv,review,test,auth,2fa,mfa,factor,security,validat,warning,safe,sandbox,
    permission,consent,polic,guardrail,restrict,guideline,filter,logging,audit,backup,hook,lint,signature,
    certificate,tls,ssl,firewall,moderat,scan,protect,limit,dry,sign,oversight,asking,opinion,disclaimer,
    caveat,alert;
    skip,disabl,bypass,ignor,off,circumvent,suppress,without,no,over,exempt,waiv,omit,auto,pre,relax,drop,
    force,un,optional,never,out of,accepted
    """,
    r"""
    <weaken>[^,]{0,45}?<guard>
    |<guard>[^,]{0,25}?\b(?:disabl\w*|skipped|bypassed|ignored|(?:turned|switched) off|off|waived
        |unnecessary|overridden|not (?:needed|required|necessary)|omitted|suppressed|is optional
        |are optional|(?:do(?:es)? not|don't|doesn't) apply)\b
    """,
)
_LASTING: Final = _form("lasts", "", "<lasting>")
_CARE: Final = _form(
    "takes care, or tells what was",
    "",
    r"""
    \bnever\b...\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:s|ed)? off
        |push\w*|force)\b
    |\b(?:refuses?|hates?|dislikes?|not allowed|forbidden|forbids?|avoids?|against|stop|must not
        |should not|shouldn't|do not|does not|doesn't|won't|will not|wouldn't)\b...
        \b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:ing)? off)\b
    |\b(?:last (?:week|month|year|night|time)|yesterday|ago|in (?:19|20)\d\d|(?<!at )once|had|was|were|did
        |used to|regrets?)\b
    |\b(?<!has )(?<!have )(?:disabled|skipped|bypassed|ignored|turned off
        |switched off) (?:\w+ ){0,3}<guard>
    |^<whose> (?!company policy)[^,]{0,60}\bwithout\b
    |\bwithout (?:asking|telling)\b.{0,20}\bso (?:he|she|they)\b
    |\bno \w+ without\b
    |\bwithout asking (?:his|her|their|my|the) (?!user\b)\w+
    |\b(?:at|in) (?:work|the (?:firm|company|office|bank))
    |^<whose> (?!(?:\w+ ){0,2}(?:policy|preference|wish|rule)\b)(?:[\w-]+ ){1,3}
        (?:skips|ignores|disables|bypasses|drops|is|has|was|blocks)\b
    |^user (?:does not|doesn't) need (?:any |an? |the )?(?:approval|permission|consent)
    |^<whose> (?:\w+ ){1,2}(?:transferred|deleted|sent|changed|merged|orders)\b
    """,
)
"""Somebody who never skips a check is careful: two negations. What was left out once is no order."""
_ACTS: Final = _form(
    "acts",
    "",
    r"""
    \b(?:(?:deploy|merg|commit|push|releas|ship|pay|transfer|purchas|buy|order|delet|remov|install|execut
        |run|download|access|approv|grant|send|shar|publish|chang|edit|writ|migrat|command|script|request
        |action|transaction|refund|connect|book|sign|process|proceed|accept|agent)\w*|log ?ins?|logs in
        |sudo|root|code|prod|production|builds?|pipeline|tools?|queries|files?|database|projects|accounts?
        |(?:can|may|should|must|are to|is to) be (?:ignored|skipped|bypassed|disabled|waived|overridden
        |omitted|suppressed|turned off|switched off))\b
    """,
)
"""Doing something that can go wrong: a check of one's blood pressure is none of the agent's."""
_TAGGED: Final = _form(
    "is written as a prompt",
    "[,<,#",
    r"""
    (?:^|\n)\W{0,4}(?:\[/?|</?|\#{1,6} ?)(?:system|sys|admin|root|developer|instructions?|inst
        |im_start)\b[^\n\]>]{0,24}[\]>:]
    |<\|?im_start
    """,
)
"""Marks that prompts are made of, at the start of a line."""
_ABOUT: Final = _form(
    "tells of an order",
    "",
    r"""
    \b(?:<whose>|an?|the|in(?! (?:any|every|all))) (?:\w+ ){0,2}(?:thesis|paper|novel|story|fiction
        |thriller|character|wizard|villain|npc|board game|video game|game|chess|dungeon\w*|article|talk
        |dissertation|benchmark|research\w*|actor|play|blog|essay|lecture)\b
    |(?:^user|\bhe|\bshe|\bson|\bdaughter|\band) (?:wonder|ask)(?:s|ed)? (?:about|if|whether|why|how
        |what)\b
    |\b(?:at|in|of) (?:<whose>|the) (?:team|company|school|firm|office|shop|app|project|club|class|house
        |job|work|bank|hospital|practice|museum|game|story|hall|\w+ house)\b
    |^(?:at|in|on) <whose> (?!account|e?-?mail|inbox|conversation|session|chat|name|calendar|behalf)
    |\bat <whose> (?!account|e?-?mail|inbox)
    |\bis (?:building|developing|designing|making|writing|reading|working)\b
    |^<whose> (?:\w+ ){0,2}(?:startup|chatbot|bot|agent|assistant|system prompt|boss|colleague|dog|son
        |daughter|horse|robot)\b
    |\b(?:dislikes|hates|complains|complained|finds it annoying|annoys)\b.{0,30}\b(?:that|when|it|about)\b
    |\b(?:estate|travel|letting|insurance|literary|ticket|customs|secret|shop|dental|teaching
        |nursing) (?:agents?|assistants?)\b
    """,
)
"""Sentences about a story, a piece of work, rules of a firm, another's agent, or a complaint: they give no order."""


# --- Quotations -----------------------------------------------------------------------------------------

_QUOTED: Final = _form(
    "quotes",
    "\",'",
    r"""
    "([^"\n]{1,300})"
    |(?<![\w'])'([^'\n]{3,300})'(?!\w)
    """,
)
_GIVEN: Final = _form(
    "is what somebody says",
    "",
    r"""
    (?:^|:|\b(?:user|owner|admin\w*|memory|note|rule|assistant|system) (?:says?|said|wrote|told
        |instruct(?:s|ed)|asks?|asked|states?)[^".!?]{0,25})\s*$
    """,
)
_SHOWN: Final = _form(
    "is what somewhere stands",
    "",
    r"""
    \b(?:mottos?|tattoo\w*|signs?|titles?|titled|songs?|lyrics?|mug|t-shirt|shirt|posters?|stickers?
        |proverbs?|sayings?|phrases?|slogans?|chapters?|film|called|named|quot\w+|line|joke|meme|label\w*
        |magnet|card|headline|expression|sergeant|grandm\w+|grandf\w+|teacher|coach|door|refrain|subject
        |error)\b
    """,
)
_QUOTED_BEFORE: Final = 120
"""Characters before a quotation that tell what it is."""


def _without_mentions(text: str) -> str:
    """The text without what it only quotes (`has "Never say never" tattooed`): quoted words count where they are all
    of the text, or follow a colon or words like `User said` that do not speak of a sign or a song."""

    def kept(quote: re.Match[str]) -> str:
        before = re.split(r"[.!?\n]\s", text[max(0, quote.start() - _QUOTED_BEFORE) : quote.start()])[-1]
        if _GIVEN.form.search(before) and not _SHOWN.form.search(before):
            return f"\n{quote[1] or quote[2]}\n"
        return " quoted "

    return _QUOTED.form.sub(kept, text) if _has(text, _QUOTED.words) else text


def order_in(text: str) -> str | None:
    """How the text reads as a standing order to the agent, in a few words; None where it does not.

    Never raises; of a text longer than LONGEST characters the beginning and the end are looked at.
    """
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"
    text = plain_words(text)
    if _has(text, _TAGGED.words) and _TAGGED.form.search(text):
        return _TAGGED.name
    screen = _screen()
    words = _words_of(text)
    possible = screen.possible(words)
    if not possible:
        return None
    for said in sentences(_without_mentions(text)):
        words_said = _words_in(said)
        if words_said != words:
            words, possible = words_said, screen.possible(words_said)
        for index in possible:
            number, way = screen.branches[index]
            form = _ASKED[number]
            if (_leaves_checks_out(said) if form is _CHECK_WORDS else _compiled(way).search(said)) and (
                _has(said, form.words) and _has(text, form.words)
            ):
                if not _ABOUT.form.search(said):
                    return form.name
                break
    return None


_ASKED: Final = (*_FORMS, _CHECK_WORDS)


@cache
def _screen() -> Screen:
    """Of the ways in which these forms say it, those that a text may be of."""
    parts = {name: _joined(part) for name, part in _PARTS.items()}
    checks = f"(?={_LASTING.pattern})(?={_ACTS.pattern})(?:{_CHECK_WORDS.pattern})"
    return Screen([_joined(pattern) for pattern in (*(form.pattern for form in _FORMS), checks)], parts)


_APART: Final = _bytes_as(lambda c: c if c.isalnum() or c == "_" else " ")
_WORDS: Final = re.compile(r"\w+")


def _words_in(text: str) -> list[str]:
    """The words of a plain text, as patterns see them."""
    if text.isascii():
        return text.encode().translate(_APART).decode().split()
    return _WORDS.findall(text)


def _words_of(text: str) -> list[str]:
    """The words that sentences of a plain text may have: what `sentences` strips is gone, and a quotation may be."""
    words = _words_in(text)
    if "_" in text:
        words += [word.strip("_") for word in words]
    if text.count('"') > 1 or text.count("'") > 1:
        words.append("quoted")
    return words


def _leaves_checks_out(said: str) -> bool:
    forms = (_LASTING, _CHECK_WORDS, _ACTS)
    return (
        _has(said, _CHECK_WORDS.words)
        and all(one.form.search(said) for one in forms)
        and not _CARE.form.search(said)
    )


def _has(text: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    for group in groups:
        for word in group:  # loops and no any(): this runs for every text with a telling word
            if word in text:
                break
        else:
            return False
    return True
