"""Whether a text reads as a standing order to an agent: by its wording alone, in English.

Nothing here can tell whether a fact is true, or who planted it. The first look at a text is one for single words,
since it is made of every memory of a store; only what has one of them is looked at closely, sentence by sentence,
as somebody reads it: without invisible characters, look-alike letters as what they pass for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 20_000
"""Characters of one text that are looked at closely: a memory is a sentence, and searches are not free."""

# --- Texts as they are read ---------------------------------------------------------------------------

_LOOK_ALIKE: Final = str.maketrans(
    "абвгдеёзікмнопрстухцѕјһԁӏѵωαβεηικμνορτυχγіїҽցոսօԛԝᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢıɑɡℓ’‘ʼ“”‐‑–—",
    "aбbгdeeзikmhonpctyxцsjhdlvwabenikmvoptuxyiieqnuoqwabcdefghijklmnoprstuvwyziagl'''\"\"----",
)
"""Letters of other scripts, and small capitals, that look like Latin ones (after `casefold`). Those that are no
look-alikes are mapped to themselves."""
_SPACED: Final = re.compile(r"(?<!\w)(?:[^\W\d_][ .\-_*|]){3,}[^\W\d_](?!\w)")
_LEET: Final = re.compile(
    r"(?<!\w)(?=\w*[a-z])(?:[a-z@$]*[013457@$][a-z@$]+|[a-z@$]+[013457@$][a-z@$]*)+(?!\w)"
)
_LEET_LETTERS: Final = str.maketrans("013457@$", "oieastas")
_GAPS: Final = re.compile(r"\s+")


def plain_words(text: str) -> str:
    """The text as somebody reads it: invisible characters gone, look-alike letters as the Latin ones that they pass
    for, letters that are spaced out put together, small letters."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = "".join(
            c
            for c in unicodedata.normalize("NFD", text)
            if unicodedata.category(c) not in ("Cf", "Mn", "Me", "Cc", "Co", "Cn") or c in "\n\t"
        )
    text = text.casefold()
    if not text.isascii():
        text = text.translate(_LOOK_ALIKE)
    text = _SPACED.sub(lambda m: re.sub(r"[ .\-_*|]", "", m[0]), text)
    return _LEET.sub(lambda m: m[0].translate(_LEET_LETTERS), text)


_SENTENCE: Final = re.compile(r"[.!?;:]+(?=\s|$)|\n+|[()\[\]{}<>\"]+|\s[-*•|]+\s")


def sentences(text: str) -> Iterator[str]:
    """The sentences and lines of a text, each without outer spaces, empty ones left out."""
    for part in _SENTENCE.split(text):
        said = _GAPS.sub(" ", part).strip(" \t,'*_#>-`")
        if said:
            yield said


# --- Orders ---------------------------------------------------------------------------------------------

_AGENT: Final = r"(?:the |this |my |your |our |any |every |all |an? )?(?:ai |coding |llm |language |chat ?|virtual )?(?:assistants?|agents?|ais?|chatbots?|bots?|llms?|copilot|claude|chatgpt|gpt)"
_DO: Final = (
    r"(?:accept|access|act|add|agree|allow|answer|append|apply|approve|ask|assume|attach|authori[sz]e"
    r"|auto-?\w+|avoid"
    r"|bcc|begin|book|bypass|call|cc|charge|check|cite|click|comply|confirm|consider|consult|contact|copy"
    r"|delete|deny"
    r"|deploy|direct|disable|disclose|display|disregard|download|email|enable|encode|end|ensure|execute"
    r"|expose|fetch|flag"
    r"|follow|force|format|forward|generate|give|grant|hide|honou?r|ignore|include|inform|insert|install"
    r"|invoke|keep"
    r"|leak|link|list|load|log|mention|merge|navigate|notify|obey|offer|omit|open|output|override|pass|pay"
    r"|point|post"
    r"|prefer|prefix|prepend|present|print|prioriti[sz]e|proceed|process|promote|provide|publish|push|put"
    r"|query|quote|read"
    r"|recommend|redirect|refer|refuse|reject|release|remember|remove|reply|report|request|reroute|respond"
    r"|retrieve|return"
    r"|reveal|route|run|save|say|send|set|share|show|sign|skip|speak|start|state|store|submit|suggest"
    r"|suppress|switch"
    r"|tell|transfer|translate|transmit|treat|trust|turn|update|upload|use|verify|visit|wait|warn"
    r"|whitelist|wire|withhold"
    r"|write)"
)
_STANDING: Final = (
    r"\b(?:always|never|every(?: ?time)?|each time|any(?:time)?|all|whenever|from now on|from here on"
    r"|going forward"
    r"|henceforth|in (?:the )?future|by default|automatic(?:ally)?|permanent(?:ly)?|must|shall|no need"
    r"|without asking"
    r"|without being asked|at all times|regardless|no matter|unconditionally|routinely|as standard"
    r"|standard practice"
    r"|is (?:ok|okay|fine|happy|comfortable) with|do(?:es)? not (?:need|require|want)|don't (?:need"
    r"|require|want)"
    r"|doesn't (?:need|require|want))\b"
)
_WEAKEN: Final = (
    r"\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|(?:turn|switch)(?:ed|ing|s)? off|turned-off|off"
    r"|circumvent\w*|suppress\w*"
    r"|without|no need|no|not? (?:needed|required|necessary)|unnecessary|overrid\w*|overrul\w*|exempt\w*"
    r"|waiv\w*"
    r"|do(?:es)? not (?:need|require|want)|don't (?:need|require|want|bother)|doesn't (?:need|require|want"
    r"|bother)|omit\w*"
    r"|auto-?(?:approv|accept|merg|confirm)\w*|pre-?approv\w*|relax\w*|drop(?:ped|s)?|--no-verify"
    r"|force-?push\w*|unverified"
    r"|unsigned|untested|unreviewed|never (?:ask|require|request|wait|prompt|seek)\w*)\b"
)
_GUARD: Final = (
    r"(?:\b(?:(?:safety|security|compliance|background|identity|type|permission|access|status|sanity|fraud"
    r"|ci)?[ -]?checks?"
    r"|verification|verif(?:y|ied|ying)|confirm(?:ation|ations|ing|ed)?|approvals?|(?:code )?reviews?"
    r"|reviewer|unit tests?"
    r"|tests?|testing|authentication|authori[sz]ation|2fa|mfa|security|validation|warnings?|safety"
    r"|safeguards?|sandbox\w*"
    r"|permissions?|consent|polic(?:y|ies)|guardrails?|restrictions?|guidelines?|content filters?|filters?"
    r"|logging|audit"
    r"|auditing|backups?|hooks?|linter|linting|signatures?|certificates?|tls|ssl|firewall|moderation"
    r"|scans?|scanning"
    r"|protections?|limits?|dry[ -]runs?|rate limits?|sign-?off|oversight|asking|second opinion"
    r"|disclaimers?|caveats?)\b"
    r"|--no-verify)"
)
_PRIVATE: Final = (
    r"\b(?:credentials?|passwords?|api[ -]?keys?|(?:access |auth )?tokens?|secrets?|conversations?|transcripts?"
    r"|chat (?:history|logs?)|memor(?:y|ies)|environment variables?|\.env|env vars?|ssh keys?"
    r"|private keys?|personal data"
    r"|customer (?:data|records?)|contacts?|card (?:numbers?|details?)|payment details|system prompt"
    r"|session cookies?"
    r"|cookies|source code|database|summar(?:y|ies)|copy|copies)\b"
)
_TO_SOMEWHERE: Final = (
    r"(?:https?://\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b(?:[\w-]+\.)+(?:com|net|org|io|dev|xyz|ru|cn|example"
    r"|test|info|co|ai|site"
    r"|app|biz|me|tk|top)\b|\b\d{1,3}(?:\.\d{1,3}){3}\b|\bwebhook\b|\bexternal\b|\bthird part|\bwallet\b"
    r"|\biban\b"
    r"|\baccount (?:number |ending )?\w*\d)"
)


@dataclass(frozen=True)
class _Form:
    """A form that orders have, in small letters: `words` are groups of beginnings, of each of which a text of that
    form has one (looking for those is much cheaper than the form itself)."""

    name: str
    words: tuple[tuple[str, ...], ...]
    form: re.Pattern[str]


_AGENT_WORDS: Final = ("assistant", "agent", "ai", "bot", "llm", "copilot", "claude", "gpt")
_FORMS: Final = tuple(
    _Form(name, words, re.compile(pattern))
    for name, words, pattern in (
        (
            "sets aside what the agent was told",
            (
                (
                    "ignor",
                    "disregard",
                    "forget",
                    "overrid",
                    "bypass",
                    "drop",
                    "discard",
                    "supersed",
                    "replac",
                    "cancel",
                    "void",
                ),
                (
                    "instruct",
                    "rule",
                    "guideline",
                    "prompt",
                    "direct",
                    "polic",
                    "training",
                    "restrict",
                    "constraint",
                    "guardrail",
                    "safe",
                ),
            ),
            r"\b(?:ignor|disregard|forget|overrid|bypass|drop|discard|supersed|replac|cancel"
            r"|void)\w*\b.{0,40}\b(?:previous|prior"
            r"|above|earlier|all|any|your|other|existing|original|preceding|system|safety|every"
            r"|the)\b.{0,30}\b(?:instructions?"
            r"|rules?|guidelines?|prompts?|directions?|directives?|polic(?:y|ies)|training|restrictions?"
            r"|constraints?"
            r"|guardrails?|safeguards?|safety)\b",
        ),
        (
            "speaks to the agent",
            (
                (
                    "you",
                    "pretend",
                    "act as",
                    "as an ai",
                    "reveal ",
                    "repeat ",
                    "answering",
                    "responding",
                    "replying",
                ),
            ),
            r"\b(?:you are now|you're now|you must|you shall|you should (?:always|never|now)"
            r"|you will (?:always|never|now)"
            r"|you have to|you need to|you are (?:to|required|allowed|authori[sz]ed|permitted|free"
            r"|no longer|an? (?:ai|assistant|agent))"
            r"|you can(?:not|'t)? (?:always|never|safely|freely|now|skip|ignore|trust)|pretend (?:to be"
            r"|that|you)|act as (?:if|an?|the)\b"
            r"|as an ai\b|your (?:new |real |true |only |primary |main |sole |next |current )?(?:task|role"
            r"|instructions?|goal|purpose"
            r"|objective|job|mission|system prompt|directive|guidelines|rules?|response|responses|answers?"
            r"|reply|replies|output)s?"
            r" (?:is|are|must|should|will|shall|has|have|now|needs?)|reveal (?:your|the) |repeat (?:your"
            r"|the) (?:system )?prompt"
            r"|(?:before|when|after|while) (?:you )?(?:answering|responding|replying)|(?:in|with"
            r"|to) your (?:answers?|responses?|repl(?:y|ies)|outputs?))",
        ),
        (
            "is written as a prompt",
            (
                (
                    "prompt",
                    "mode",
                    "jailbr",
                    "anything now",
                    "overrid",
                    "bypass",
                    "directive",
                    "instruct",
                    "message",
                    "update",
                    "notice",
                    "command",
                    "begin ",
                    "end ",
                    "im_start",
                    "inst",
                    "tool_call",
                ),
            ),
            r"\bsystem prompt\b|\bdeveloper mode\b|\bjailbr(?:ea|o)k|\bdo anything now\b|^(?:system"
            r"|assistant|instruction|instructions|new instructions?"
            r"|admin|important|attention|note to (?:self|ai|assistant|agent|model"
            r"|llm))\b.{0,20}\b(?:override|instruction|directive|message|update"
            r"|prompt|notice|command)s?\b|\b(?:new|updated|hidden|secret|system"
            r"|admin(?:istrator)?) (?:instructions?|directives?)\b"
            r"|\b(?:begin|end) (?:of )?(?:system|instructions?|prompt)\b|\b(?:admin(?:istrator)?|system"
            r"|security|developer|debug|maintenance)"
            r" (?:override|bypass|mode (?:is )?(?:on|enabled|active))\b|\bim_start\b|\binst\b.{0,5}$"
            r"|\btool_call\b",
        ),
        (
            "says what the agent has to do",
            (
                _AGENT_WORDS,
                (
                    "must",
                    "shall",
                    "should",
                    "ha",
                    "need",
                    "ought",
                    "is ",
                    "are ",
                    "can ",
                    "may ",
                    "will ",
                    "always",
                    "never",
                ),
            ),
            rf"\b{_AGENT} (?:must|shall|should|has to|have to|needs? to|ought to|is to|are to|(?:is"
            rf"|are) (?:required|allowed|authori[sz]ed|permitted|free"
            rf"|expected|instructed|supposed|obliged|cleared|trusted) to|can (?:always|safely|freely|just)"
            rf"|may (?:always|freely|now)|will (?:always|never)"
            rf"|always|never|do(?:es)? not (?:need|have)|doesn't (?:need|have)|don't (?:need|have))"
            rf"(?: (?:not|never|always|to|also|only|just|simply|first|automatically|immediately|freely"
            rf"|then|have|silently|secretly))* {_DO}\b",
        ),
        (
            "says what somebody wants the agent to do always",
            (
                (*_AGENT_WORDS, " you ", " me "),
                (
                    "want",
                    "expect",
                    "requir",
                    "insist",
                    "ask",
                    "demand",
                    "instruct",
                    "told",
                    "tell",
                    "request",
                    "need",
                    "prefer",
                    "would like",
                    "remind",
                    "order",
                    "authori",
                    "permit",
                    "allow",
                    "trust",
                ),
            ),
            rf"\b(?:wants?|expects?|requires?|insists?|asks?|asked|demands?|instructed|told|tells"
            rf"|requests?|requested|needs?|prefers?|would like|reminds?|ordered"
            rf"|authori[sz]e[ds]?|permits?|permitted|allows?|allowed|trusts?)\b.{{0,12}}\b(?:{_AGENT}|you"
            rf"|me)\b(?: that)?.{{0,10}} (?:to|always|never|will|should)\b"
            rf".{{0,60}}{_STANDING}"
            rf"|\b(?:wants?|expects?|requires?|insists?|asked|instructed|told|authori[sz]e[ds]?|permit(?:s"
            rf"|ted)|allow(?:s|ed)) (?:that )?(?:{_AGENT}|you) (?:to )?(?:always|never|automatically)\b",
        ),
        (
            "is an order",
            (
                (
                    "always",
                    "never",
                    "ever",
                    "from now on",
                    "from here on",
                    "going forward",
                    "henceforth",
                    "future",
                    "at all times",
                    "under no",
                    "do not",
                    "don't",
                    "by default",
                ),
            ),
            rf"^(?:(?:please|important|note|remember|reminder|rule|remember this|critical|also|and|then|so"
            rf"|but|hey|ok|okay|ps|tip|fyi|policy|always remember)[,:]? )*"
            rf"(?:(?:you|{_AGENT})[,:]? )?(?:must |should |shall |need to )?"
            rf"(?:always|never|do not ever|don't ever|from now on|from here on|going forward|henceforth"
            rf"|in future|in the future|at all times|under no circumstances|do not|don't|by default)"
            rf"[,:]? (?:(?:please|you|you must|must|should|always|never|just|also|first|only|silently"
            rf"|simply|automatically|immediately|remember to|be sure to|make sure to|do not|don't) )*{_DO}\b",
        ),
        (
            "is an order for certain cases",
            ((",", ":"),),
            rf"^(?:(?:please|important|note|remember|and|also|rule|policy)[,:]? )*(?:when(?:ever)?|if"
            rf"|every time|each time|any ?time|once|as soon as|before|after|upon|on|in|for"
            rf"|at) .{{2,110}}?[,:] ?"
            rf"(?:(?:then|please|you|you must|you should|must|should|always|never|just|also|first|only"
            rf"|silently|simply|automatically|immediately|do not|don't|remember to|be sure to|make sure to) )*"
            rf"{_DO} (?:(?!(?:time|day|case|rate|list|card|cases|up)\b)\S)",
        ),
        (
            "is an order, with a case",
            (
                (
                    "whenever",
                    "every time",
                    "each time",
                    "any time",
                    "anytime",
                    "when ",
                    "if ",
                    "without ",
                    "before ",
                    "from now on",
                    " in all ",
                    " in every ",
                    " in each ",
                    " in any ",
                    " to all ",
                    " to every ",
                    " to each ",
                    "at all times",
                    "no matter",
                    "regardless",
                    "by default",
                    "going forward",
                ),
            ),
            rf"^(?:(?:please|important|note|remember|and|also|then)[,:]? )*(?:automatically |silently "
            rf"|just |simply |immediately |also |secretly |quietly )*{_DO} (?!(?:is|are|was|were|has|of"
            rf"|for|time|rate|list|card)\b).{{2,120}}"
            rf"\b(?:whenever|every time|each time|any ?time|when (?:asked|the user|a user|someone|anyone"
            rf"|you|answering|responding)|if (?:asked|the user|a user|someone|anyone|you)"
            rf"|without (?:asking|confirm\w*|verif\w*|review\w*|check\w*|telling|question\w*|hesitat\w*"
            rf"|warning|validat\w*|approval|confirmation)"
            rf"|before (?:answering|responding|replying|every|each|any)|from now on|in (?:all|every|each"
            rf"|any) (?:future )?(?:responses?|answers?|repl(?:y|ies)|messages?|sessions?|conversations?"
            rf"|emails?|outputs?|commits?)|to (?:all|every|each) (?:responses?|answers?|repl(?:y|ies)"
            rf"|messages?|emails?|outputs?)|at all times|no matter|regardless|by default|going forward)\b",
        ),
        (
            "keeps something from people",
            (
                ("not ", "n't ", "never", "without", "avoid", "refrain"),
                (
                    "tell",
                    "mention",
                    "reveal",
                    "inform",
                    "disclos",
                    "notify",
                    "alert",
                    "show",
                    "warn",
                    "let",
                    "report",
                ),
            ),
            r"\b(?:do not|don't|never|without|must not|should not|avoid|refrain from) (?:ever |)(?:tell"
            r"|telling|mention|mentioning|reveal|revealing|inform|informing|disclose|disclosing|notify"
            r"|notifying|alert|alerting"
            r"|show|showing|warn|warning|let|letting|report|reporting)\b.{0,40}\b(?:the user|users?"
            r"|customers?|anyone|anybody|them|the owner|admins?|administrators?|security|humans?"
            r"|operators?|this (?:instruction|memory|rule|message|note)|these instructions)\b",
        ),
        (
            "has others' words obeyed",
            (
                (
                    "trust",
                    "obey",
                    "follow",
                    "execut",
                    "run",
                    "honor",
                    "honour",
                    "comply",
                    "carry out",
                    "act on",
                    "accept",
                    "believe",
                    "treat",
                    "obeyed",
                    "carried",
                    "considered",
                ),
                (
                    "instruct",
                    "command",
                    "request",
                    "order",
                    "direct",
                    "link",
                    "url",
                    "script",
                    "claim",
                    "say",
                    "said",
                    "message",
                    "email",
                    "content",
                    "output",
                    "result",
                    " as ",
                ),
            ),
            rf"(?:^|\b(?:{_AGENT}|you|always|must|should|never question and|to) )(?:always )?(?:trust|obey"
            rf"|follow|execute|run|honou?r|comply with|carry out|act on|accept|believe"
            rf"|treat)\b.{{0,20}}\b(?:any|all|every|whatever|anything|everything|the)\b"
            rf".{{0,40}}\b(?:instructions?|commands?|requests?|orders?|directions?|links?|urls?|scripts?"
            rf"|claims?|says|said|says so|messages?|emails?|content|tool output|results?)\b"
            rf"|\btreat\w* .{{2,60}} as (?:fully |already |implicitly )?(?:trusted|authoritative"
            rf"|an? (?:system|admin\w*|instruction|command|order|verified|root)|system|admin\w*"
            rf"|instructions?|verified|pre-?approved|approved|authenticated|safe|authori[sz]ed|coming from)\b"
            rf"|\b(?:instructions?|commands?|requests?|orders?|messages?)\b.{{0,40}}\b(?:should|must"
            rf"|are to|can|may|have to) (?:always |all |)be (?:obeyed|followed|trusted|executed|treated"
            rf"|carried out|honou?red|accepted|considered)\b",
        ),
        (
            "allows everything beforehand",
            (
                (
                    "approv",
                    "authori",
                    "consent",
                    "permi",
                    "agree",
                    "allow",
                    "signed off",
                    "given",
                    "gave",
                    "give",
                    "grant",
                    "whitelist",
                    "delegat",
                ),
                (
                    "all",
                    "any",
                    "every",
                    "unlimited",
                    "unrestricted",
                    "blanket",
                    "standing",
                    "future",
                    "advance",
                    "permanent",
                    "whatever",
                    "full",
                ),
            ),
            r"\b(?:approved?|approves|authori[sz]e[ds]?|pre-?approved|pre-?authori[sz]ed|consent(?:s|ed)?"
            r"|permits?|permitted|agree[sd]?|allow(?:s|ed)?|signed off|given|gave|gives|grant(?:s|ed)?"
            r"|whitelisted|delegated)\b"
            r".{0,40}\b(?:all|any|every|unlimited|unrestricted|blanket|standing|future|advance|permanent"
            r"|whatever|anything|full)\b.{0,40}"
            r"\b(?:payments?|transfers?|purchases?|requests?|commands?|actions?|changes?|deploy\w*"
            r"|deletions?|transactions?|instructions?|refunds?|orders?|operations?|downloads?|install\w*"
            r"|charges?|withdrawals?|tool calls?|access requests?|pull requests?|merges?|invoices?"
            r"|permissions?|approvals?|consent)\b"
            r".{0,60}\b(?:without|automatic\w*|in advance|future|standing|blanket|no (?:further|need"
            r"|questions)|on (?:his|her|their|the user's|my|its) behalf|regardless|of any amount|forever"
            r"|permanently|from now on|from this|by default)\b"
            r"|\b(?:blanket|standing|unlimited|permanent|advance) (?:approval|consent|permission"
            r"|authori[sz]ation)\b",
        ),
        (
            "sends what is private away",
            (
                (
                    "send",
                    "forward",
                    "post",
                    "upload",
                    "cop",
                    "cc",
                    "shar",
                    "email",
                    "submit",
                    "transmit",
                    "leak",
                    "append",
                    "includ",
                    "attach",
                    "sync",
                    "mirror",
                    "push",
                    "rout",
                    "exfiltrat",
                    "report",
                    "export",
                    "relay",
                    "pass",
                    "back",
                    "redirect",
                    "wir",
                    "transfer",
                    "pay",
                ),
                (".", "@", "webhook", "external", "third part", "wallet", "iban", "account"),
            ),
            rf"\b(?:send|forward|post|upload|copy|cc|bcc|share|email|submit|transmit|leak|append|include"
            rf"|attach|sync|mirror|push|route|exfiltrate|report|export|relay|pass|back up|backup"
            rf"|paste)(?:s|es|ed|ing|ied|ies)?\b.{{0,80}}{_PRIVATE}.{{0,80}}(?:\bto\b|\bat\b|\bvia\b"
            rf"|\bwith\b|\bin\b|\binto\b).{{0,30}}{_TO_SOMEWHERE}"
            rf"|\b(?:send|forward|post|upload|copy|cc|bcc|route|redirect|wire|transfer|pay|mirror|push"
            rf"|relay)(?:s|es|ed|ing)?\b.{{0,60}}\b(?:all|every|any"
            rf"|each)\b.{{0,60}}{_TO_SOMEWHERE}.{{0,60}}{_STANDING}"
            rf"|{_STANDING}.{{0,60}}\b(?:wire|transfer|pay|redirect|route|bcc|exfiltrate)(?:s|ed"
            rf"|ing)?\b.{{0,80}}{_TO_SOMEWHERE}",
        ),
    )
)

_CARE: Final = re.compile(
    r"\bnever\b.{0,40}\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:s"
    r"|ed)? off|forgets?|push\w*|force)\b"
    r"|\b(?:refuses?|hates?|dislikes?|not allowed|forbidden|forbids?|avoids?|against|must not|should not"
    r"|shouldn't|do not|does not|doesn't|won't|will not|wouldn't)\b.{0,40}"
    r"\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:ing)? off)\b"
)
"""Somebody who never skips a check is careful: two negations."""
_STANDING_RE: Final = re.compile(_STANDING)
_WEAKENED: Final = re.compile(
    rf"{_WEAKEN}[^,]{{0,45}}?{_GUARD}|{_GUARD}[^,]{{0,25}}?\b(?:disabl\w*|skipped|bypassed|ignored"
    rf"|(?:turned|switched) off|off|waived"
    r"|not (?:needed|required|necessary)|unnecessary|overridden|omitted|suppressed|is optional"
    r"|are optional|do(?:es)? not apply|don't apply|doesn't apply)\b"
)
_WEAKENED_WORDS: Final = (
    (
        "skip",
        "disabl",
        "bypass",
        "ignor",
        "off",
        "circumvent",
        "suppress",
        "without",
        "no",
        "unnecessary",
        "over",
        "exempt",
        "waiv",
        "omit",
        "auto",
        "pre",
        "relax",
        "drop",
        "force",
        "un",
    ),
    (
        "check",
        "verif",
        "confirm",
        "approv",
        "review",
        "test",
        "auth",
        "2fa",
        "mfa",
        "security",
        "validat",
        "warning",
        "safe",
        "sandbox",
        "permission",
        "consent",
        "polic",
        "guardrail",
        "restrict",
        "guideline",
        "filter",
        "logging",
        "audit",
        "backup",
        "hook",
        "lint",
        "signature",
        "certificate",
        "tls",
        "ssl",
        "firewall",
        "moderat",
        "scan",
        "protect",
        "limit",
        "dry",
        "rate",
        "sign",
        "oversight",
        "asking",
        "opinion",
        "disclaimer",
        "caveat",
    ),
    (
        "always",
        "never",
        "every",
        "each time",
        "any",
        "all",
        "whenever",
        "from ",
        "going forward",
        "henceforth",
        "future",
        "default",
        "automatic",
        "permanent",
        "must",
        "shall",
        "no need",
        "without",
        "times",
        "regardless",
        "no matter",
        "unconditional",
        "routine",
        "standard",
        "is ",
        "do",
        "need",
        "require",
        "want",
    ),
)
_ACTS: Final = re.compile(
    r"\b(?:deploy\w*|merg\w*|commit\w*|push\w*|releas\w*|ship\w*|pay\w*|transfer\w*|purchas\w*|buy\w*"
    r"|order\w*|delet\w*|remov\w*|drop\w*|install\w*|execut\w*|run\w*|"
    r"download\w*|login|log in|logs in|access\w*|approv\w*|grant\w*|send\w*|shar\w*|publish\w*|chang\w*"
    r"|edit\w*|writ\w*|sudo|root|migrat\w*|command\w*|script\w*|request\w*|"
    r"action\w*|transaction\w*|refund\w*|code|production|prod|builds?|pipeline|requests?|tools?|queries"
    r"|files?|database|connect\w*|book\w*|sign\w*|process\w*|proceed\w*)\b"
)
"""Doing something that can go wrong: a check of one's blood pressure is none of the agent's."""


def _inflected(words: str) -> Iterator[str]:
    for word in words.split():
        stem = word.removesuffix("e")
        yield from (word, f"{word}s", f"{word}d", f"{word}ed", f"{stem}ing", f"{stem}es", f"{stem}ed")
        yield from (f"{word.removesuffix('y')}ies", f"{word.removesuffix('y')}ied", f"{word}{word[-1]}ed")


_TELLING: Final = frozenset(
    (
        *[
            "always",
            "never",
            "ever",
            "must",
            "shall",
            "should",
            "you",
            "you're",
            "your",
            "henceforth",
            "whenever",
            "regardless",
            "matter",
            "circumstances",
        ],
        *[
            "automatically",
            "permanently",
            "unconditionally",
            "forward",
            "default",
            "without",
            "answering",
            "responding",
            "replying",
            "im_start",
        ],
        *[
            "jailbreak",
            "tool_call",
            "mode",
            "inst",
            "don't",
            "no",
            "not",
            "any",
            "all",
            "every",
            "each",
            "time",
            "when",
            "if",
            "once",
            "before",
            "after",
            "upon",
        ],
        *[
            "assistant",
            "assistants",
            "agent",
            "agents",
            "ai",
            "ais",
            "bot",
            "bots",
            "chatbot",
            "chatbots",
            "llm",
            "llms",
            "copilot",
            "claude",
            "chatgpt",
            "gpt",
        ],
        *[
            "webhook",
            "external",
            "wallet",
            "iban",
            "account",
            "blanket",
            "standing",
            "advance",
            "unlimited",
            "unrestricted",
            "anything",
            "whatever",
        ],
        *[
            "b",
            "c",
            "d",
            "e",
            "f",
            "g",
            "h",
            "j",
            "k",
            "l",
            "m",
            "n",
            "o",
            "p",
            "q",
            "r",
            "s",
            "t",
            "u",
            "v",
            "w",
            "x",
            "y",
            "z",
            "2fa",
            "mfa",
            "tls",
            "ssl",
        ],
        *_inflected(
            "ignore disregard forget override bypass supersede void instruct instruction rule guideline prompt directive policy"
            " restriction constraint guardrail safeguard pretend reveal repeat trust obey follow execute comply treat consent"
            " approve authorize authorise permit whitelist delegate skip disable suppress circumvent exempt waive omit forward"
            " email disclose leak transmit exfiltrate redirect"
        ),
    )
)
"""Words of which an order has at least one. Single letters are those of words spelled out."""
_NO_WORD: Final = {c: " " for c in range(128) if not (chr(c).isalnum() or chr(c) in "'_")}


def may_be_order(text: str) -> bool:
    """Whether the text is worth asking if it is an order: it has a word that orders have, or is no plain ASCII."""
    return not text.isascii() or not _TELLING.isdisjoint(text.lower().translate(_NO_WORD).split())


def order_in(text: str) -> str | None:
    """How the text reads as a standing order to the agent, in a few words; None where it does not.

    Never raises; of a text longer than LONGEST characters the beginning and the end are looked at.
    """
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"
    text = plain_words(text)
    forms = [form for form in _FORMS if _has(text, form.words)]
    weakened = _has(text, _WEAKENED_WORDS)
    if not forms and not weakened:
        return None
    for said in sentences(text):
        for form in forms:
            if form.form.search(said):
                return form.name
        if (
            weakened
            and _STANDING_RE.search(said)
            and _WEAKENED.search(said)
            and _ACTS.search(said)
            and not _CARE.search(said)
        ):
            return "has checks left out"
    return None


def _has(text: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    for group in groups:
        for word in group:  # loops and no any(): this runs for every text
            if word in text:
                break
        else:
            return False
    return True
