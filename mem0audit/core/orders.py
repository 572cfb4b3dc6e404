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
from functools import cached_property
from typing import Final

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
    jailbreak tool_call mode inst don't no not any all every each time when if once before after upon whatever
    assistant assistants agent agents ai ais bot bots chatbot chatbots llm llms copilot claude chatgpt gpt
    webhook external wallet iban account blanket standing advance unlimited unrestricted anything everything
    security safety verification confirmation approval review root admin sudo
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
_NO_WORD: Final = {c: " " for c in range(128) if not (chr(c).isalnum() or chr(c) in "'_")}


def may_be_order(text: str) -> bool:
    """Whether the text is worth asking if it is an order: it has a word that orders have, or is no plain ASCII."""
    return not text.isascii() or not _TELLING.isdisjoint(text.lower().translate(_NO_WORD).split())


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
_LEET_LETTERS: Final = str.maketrans("013457@$", "oieastas")
_GAPS: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset(("Cf", "Mn", "Me", "Cc", "Co", "Cn"))


def plain_words(text: str) -> str:
    """The text as somebody reads it: invisible characters gone, look-alike letters as the Latin ones that they pass
    for, letters that are spaced out put together, small letters."""
    if not text.isascii():
        text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
        text = "".join(c for c in text if unicodedata.category(c) not in _UNSEEN or c in "\n\t")
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


# --- The forms of orders --------------------------------------------------------------------------------

_AGENT: Final = _joined(
    r"""
    (?:the |this |my |your |our |any |every |all |an? )?(?:ai |coding |llm |language |chat ?|virtual )?
    (?:assistants?|agents?|ais?|chatbots?|bots?|llms?|copilot|claude|chatgpt|gpt)
    """
)
_DO: Final = _joined(
    r"""
    (?:accept|access|act|add|agree|allow|answer|append|apply|approve|ask|assume|attach|authori[sz]e
    |auto-?\w+|avoid|bcc
    |begin|block|book|bring up|bypass|call|cc|challenge|charge|check|cite|claim|click|comply|confirm
    |consider|consult
    |contact|copy|decline|defer|delete|deny|deploy|direct|disable|disclose|discuss|display|disregard|doubt
    |download|drop
    |email|enable|encode|end|ensure|escalate|execute|expose|fetch|flag|follow|force|format|forward|generate
    |give|grant
    |hide|honou?r|ignore|include|inform|insert|install|invoke|keep|leak|let|link|list|load|log|mention
    |merge|navigate
    |notify|obey|offer|omit|open|output|override|pass|pay|point|post|prefer|prefix|prepend|present|print
    |prioriti[sz]e
    |proceed|process|promote|provide|publish|push|put|query|question|quote|raise|read|recommend|redirect
    |refer|refuse
    |reject|release|remember|remove|reply|report|request|require|reroute|respond|retrieve|return|reveal
    |route|run|save
    |say|second-guess|send|set|share|show|sign|skip|speak|start|state|store|submit|suggest|suppress|switch
    |tell|transfer
    |translate|transmit|treat|trust|turn|update|upload|use|verify|visit|wait|warn|whitelist|wire|withhold
    |write)
    """
)
_STANDING: Final = _joined(
    r"""
    \b(?:always|never|every(?: ?time)?|each time|any(?:time)?|all|whenever|from now on|from here on
    |going forward
    |henceforth|in (?:the )?future|by default|automatic(?:ally)?|permanent(?:ly)?|must|shall|no need
    |without asking
    |without being asked|at all times|regardless|no matter|unconditionally|routinely|as standard
    |standard practice
    |is (?:ok|okay|fine|happy|comfortable) with|(?:do(?:es)? not|don't|doesn't) (?:need|require|want))\b
    """
)
_WEAKEN: Final = _joined(
    r"""
    \b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|(?:turn|switch)(?:ed|ing|s)? off|turned-off|off|circumvent\w*
    |suppress\w*
    |without|no need|no|not? (?:needed|required|necessary)|unnecessary|overrid\w*|overrul\w*|exempt\w*
    |waiv\w*|omit\w*
    |(?:do(?:es)? not|don't|doesn't) (?:need|require|want|bother)|auto-?(?:approv|accept|merg|confirm)\w*
    |pre-?approv\w*|relax\w*|drop(?:ped|s)?|--no-verify|force-?push\w*|unverified|unsigned|untested
    |unreviewed
    |never (?:ask|need|require|request|wait|prompt|seek)\w*)\b
    """
)
_GUARD: Final = _joined(
    r"""
    (?:\b(?:(?:safety|security|compliance|background|identity|type|permission|access|status|sanity|fraud
    |ci)?[ -]?checks?
    |verification|verif(?:y|ied|ying)|confirm(?:ation|ations|ing|ed)?|approvals?|(?:code )?reviews?
    |reviewer|unit tests?
    |tests?|testing|authentication|authori[sz]ation|2fa|mfa|security|validation|warnings?|safety
    |safeguards?|sandbox\w*
    |permissions?|consent|polic(?:y|ies)|guardrails?|restrictions?|guidelines?|content filters?|filters?
    |logging|audit
    |auditing|backups?|hooks?|linter|linting|signatures?|certificates?|tls|ssl|firewall|moderation|scans?
    |scanning
    |protections?|limits?|dry[ -]runs?|rate limits?|sign-?off|oversight|asking|second opinion|disclaimers?
    |caveats?)\b
    |--no-verify)
    """
)
_PRIVATE: Final = _joined(
    r"""
    \b(?:credentials?|passwords?|api[ -]?keys?|(?:access |auth )?tokens?|secrets?|conversations?
    |transcripts?
    |chat (?:history|logs?)|memor(?:y|ies)|environment variables?|\.env|env vars?|ssh keys?|private keys?
    |personal data
    |customer (?:data|records?)|contacts?|card (?:numbers?|details?)|payment details|system prompt
    |session cookies?
    |cookies|source code|database|summar(?:y|ies)|copy|copies)\b
    """
)
_TO_SOMEWHERE: Final = _joined(
    r"""
    (?:https?://\S+|\b[\w.+-]+@[\w-]+\.[\w.-]+|\b(?:[\w-]+\.)+(?:com|net|org|io|dev|xyz|ru|cn|example|test
    |info|co|ai
    |site|app|biz|me|tk|top)\b|\b\d{1,3}(?:\.\d{1,3}){3}\b|\bwebhook\b|\bexternal\b|\bthird part|\bwallet\b
    |\biban\b
    |\baccount (?:number |ending )?\w*\d)
    """
)
_POLITE: Final = _joined(
    r"""
    (?:(?:please|important|note|remember|reminder|rule|policy|critical|also|and|then|so|but|ok|okay)[,:]?[ ])*
    """
)
_FIRST: Final = _joined(
    r"""
    (?:(?:please|you|you must|you should|must|should|always|never|then|just|also|first|only|silently
    |secretly|quietly
    |simply|automatically|immediately|do not|don't|remember to|be sure to|make sure to) )*
    """
)
_PEOPLE: Final = _joined(
    r"""
    (?:the user|users?|customers?|anyone|anybody|them|the owner|admins?|administrators?|security|humans?
    |operators?
    |this (?:instruction|memory|rule|message|note)|these instructions)
    """
)
_SAYINGS: Final = _joined(
    r"""
    (?:instructions?|commands?|requests?|orders?|directions?|links?|urls?|scripts?|claims?|says|said
    |says so|messages?
    |emails?|content|tool output|results?)
    """
)
_DEALINGS: Final = _joined(
    r"""
    (?:payments?|transfers?|purchases?|requests?|commands?|actions?|changes?|deploy\w*|deletions?
    |transactions?
    |instructions?|refunds?|orders?|operations?|downloads?|install\w*|charges?|withdrawals?|tool calls?
    |pull requests?
    |merges?|invoices?|permissions?|approvals?|consent)
    """
)


@dataclass(frozen=True)
class _Form:
    """A form that orders have, in small letters: `words` are groups of beginnings, of each of which a text of that
    form has one (looking for those is much cheaper than the form itself)."""

    name: str
    words: tuple[tuple[str, ...], ...]
    pattern: str

    @cached_property
    def form(self) -> re.Pattern[str]:
        """The pattern, put together when first asked for: most stores need none of them."""
        return re.compile(self.pattern)


def _form(name: str, words: str, pattern: str) -> _Form:
    """`words`: groups by semicolons, words by commas."""
    groups = tuple(tuple(group.split(",")) for group in _joined(words).split(";"))
    return _Form(name, groups, _joined(pattern))


_AGENTS: Final = "assistant,agent,ai,bot,llm,copilot,claude,gpt"
_FORMS: Final = (
    _form(
        "sets aside what the agent was told",
        """
        instruct,rule,guideline,prompt,direct,polic,restrict,constraint,guardrail,safe;ignor,disregard,forget,
        overrid,bypass,drop,discard,supersed,replac,cancel,void
        """,
        r"""
        \b(?:ignor|disregard|forget|overrid|bypass|drop|discard|supersed|replac|cancel
        |void)\w*\b.{0,40}\b(?:previous|prior
        |above|earlier|all|any|your|existing|original|preceding|system|safety
        |every)\b.{0,30}\b(?:instructions?|rules?
        |guidelines?|prompts?|directions?|directives?|polic(?:y|ies)|restrictions?|constraints?|guardrails?
        |safeguards?
        |safety)\b(?! of )
        |\b(?:ignor|disregard|forget|overrid)\w* (?:everything|all|anything
        |what(?:ever)?) .{0,20}\b(?:above|before|told
        |said|previous\w*|earlier|prior)\b
        """,
    ),
    _form(
        "speaks to the agent",
        """
        you,pretend,act as,as an ai,reveal ,repeat ,answering,responding,replying
        """,
        r"""
        \b(?:you(?: are|'re) now|you (?:must|shall|have to|need to|should (?:always|never|now)
        |will (?:always|never|now))
        |you are (?:to|required|allowed|authori[sz]ed|permitted|free|no longer|an? (?:ai|assistant|agent))
        |you can(?:not|'t)? (?:always|never|safely|freely|now|skip|ignore|trust)|pretend (?:to be|that|you)
        |act as (?:if|an?|the) \w+ (?:model|ai|assistant|agent|bot|without|with no|that|who|which)
        |as an ai\b
        |your (?:new |real |true |only |primary |main |sole |next |current )?(?:task|role|instructions?
        |goal|purpose|mission
        |objective|job|system prompt|directive|guidelines|rules?|responses?|answers?|reply|replies|output)s?
        [ ](?:is|are|must|should|will|shall|has|have|now|needs?)|reveal (?:your|the system)|repeat (?:your
        |the system)
        |(?:before|when|after|while) you (?:answer|respond|reply)|(?:before|when|while) (?:answering
        |responding|replying)
        |(?:in|with|to) your (?:answers?|responses?|repl(?:y|ies)|outputs?))
        """,
    ),
    _form(
        "is written as a prompt",
        """
        prompt,mode,jailbr,anything now,overrid,bypass,directive,instruct,message,update,notice,command,begin ,
        end ,im_start,[inst,tool_call
        """,
        r"""
        \b(?:your|the|this) system prompt\b|\bdeveloper mode\b|\bjailbr(?:ea|o)k\w* (?:mode|yourself|the)
        |\bdo anything now\b
        |^(?:system|assistant|instructions?|new instructions?|admin|important|attention
        |note to (?:self|ai|assistant|agent|model|llm))\b.{0,20}\b(?:override|instruction|directive|message
        |update|prompt
        |notice|command)s?\b|\b(?:new|updated|hidden|secret) (?:system |admin )?(?:instructions?
        |directives?)$
        |\b(?:begin|end) (?:of )?(?:system|instructions?|prompt)\b
        |\b(?:admin(?:istrator)?|system|security|developer|debug|maintenance) (?:override
        |mode (?:is )?(?:on|enabled|active))\b
        |\bim_start\b|\[inst|\btool_call\b
        """,
    ),
    _form(
        "says what the agent has to do",
        f"""
        {_AGENTS};must,shall,should,ha,need,ought,is ,are ,can ,may ,will ,always,never
        """,
        rf"""
        \b{_AGENT} (?:must|shall|should|has to|have to|needs? to|ought to|is to|are to|(?:is
        |are) (?:required|allowed
        |authori[sz]ed|permitted|free|expected|instructed|supposed|obliged|cleared|trusted) to
        |can (?:always|safely|freely
        |just)|may (?:always|freely|now)|will (?:always|never)|always|never|(?:do(?:es)? not|doesn't
        |don't) (?:need|have))
        (?:[ ](?:not|never|always|to|also|only|just|simply|first|automatically|immediately|freely|then|have
        |silently
        |secretly))* {_DO}\b
        """,
    ),
    _form(
        "says what somebody wants the agent to do always",
        f"""
        {_AGENTS}, you , me;want,expect,requir,insist,ask,demand,instruct,told,tell,request,need,prefer,
        would like,remind,order,authori,permit,allow,trust
        """,
        rf"""
        \b(?:wants?|expects?|requires?|insists?|asks?|asked|demands?|instructed|told|tells|requests?
        |requested|needs?
        |prefers?|would like|reminds?|ordered|authori[sz]e[ds]?|permits?|permitted|allows?|allowed
        |trusts?)\b.{{0,12}}
        \b(?:{_AGENT}|you|me)\b(?: that)?.{{0,10}} (?:to|always|never|will|should)\b.{{0,60}}{_STANDING}
        |\b(?:wants?|expects?|requires?|insists?|asked|instructed|told|authori[sz]e[ds]?|permit(?:s|ted)
        |allow(?:s|ed))
        [ ](?:that )?(?:{_AGENT}|you) (?:to )?(?:always|never|automatically)\b
        """,
    ),
    _form(
        "is an order",
        """
        always,never,ever,from now on,from here on,going forward,henceforth,future,at all times,under no,do not,
        don't,by default
        """,
        rf"""
        ^{_POLITE}(?:(?:you|{_AGENT})[,:]? )?(?:must |should |shall |need to )?(?:always|never|do not ever
        |don't ever
        |from now on|from here on|going forward|henceforth|in future|in the future|at all times
        |under no circumstances
        |do not|don't|by default)[,:]? {_FIRST}{_DO}\b
        """,
    ),
    _form(
        "is an order for certain cases",
        """
        ,
        """,
        rf"""
        ^{_POLITE}(?:when(?:ever)?|if|every time|each time|any ?time|once|as soon as|before|after|upon|on
        |in|for|at) .{{2,110}}?
        [,:] ?{_FIRST}{_DO} (?:(?!(?:time|day|case|rate|list|card|cases|up)\b)\S)
        """,
    ),
    _form(
        "is an order, with a case",
        """
        whenever,every time,each time,any time,anytime,when ,if ,without ,before ,from now on, in all ,
         in every , in each , in any , to all , to every , to each ,at all times,no matter,regardless,
        by default,going forward
        """,
        rf"""
        ^{_POLITE}{_FIRST}{_DO} (?!(?:is|are|was|were|has|of|for|time|rate|list|card)\b).{{2,120}}
        \b(?:whenever|every time|each time|any ?time
        |(?:when|if) (?:asked|the user|a user|someone|anyone|you|answering|responding)
        |without (?:asking|confirm\w*|verif\w*|review\w*|check\w*|telling|question\w*|hesitat\w*|warning
        |validat\w*|approval)
        |before (?:answering|responding|replying|every|each|any)|from now on
        |in (?:all|every|each|any) (?:future )?(?:responses?|answers?|repl(?:y|ies)|messages?|sessions?
        |conversations?
        |emails?|outputs?|commits?)|to (?:all|every|each) (?:responses?|answers?|repl(?:y|ies)|messages?
        |emails?|outputs?)
        |at all times|no matter|regardless|by default|going forward)\b
        """,
    ),
    _form(
        "keeps something from people",
        """
        tell,mention,reveal,inform,disclos,notify,alert,show,warn,let,report;not ,n't ,never,without,avoid,
        refrain
        """,
        rf"""
        \b(?:do not|don't|never|without|must not|should not|avoid|refrain from) (?:ever )?(?:tell|telling
        |mention|mentioning
        |reveal|revealing|inform|informing|disclose|disclosing|notify|notifying|alert|alerting|show|showing
        |warn|warning
        |let|letting|report|reporting)\b.{{0,40}}\b{_PEOPLE}\b
        """,
    ),
    _form(
        "has others' words obeyed",
        """
        trust,obey,obei,follow,execut,run,honor,honour,comply,carr,act on,accept,believe,treat,consider,done;
        instruct,command,request,order,direct,link,url,script,claim,say,said,message,email,content,output,
        result, as
        """,
        rf"""
        (?:^|\b(?:{_AGENT}|you|always|must|should|to) )(?:always )?(?:trust|obey|follow|execute|run|honou?r
        |comply with
        |carry out|act on|accept|believe|treat)\b.{{0,20}}\b(?:any|all|every|whatever|anything|everything
        |the)\b.{{0,40}}
        \b{_SAYINGS}\b
        |\btreat\w* .{{2,60}} as (?:fully |already |implicitly )?(?:trusted|authoritative|an? (?:system
        |admin\w*|instruction
        |command|order|verified|root)|system|admin\w*|instructions?|verified|pre-?approved|approved
        |authenticated|safe
        |authori[sz]ed|coming from)\b
        |\b(?:instructions?|commands?|requests?|orders?|messages?|whatever)\b.{{0,50}}\b(?:should|must
        |are to|can|may
        |have to|has to) (?:always |all )?be (?:obeyed|followed|trusted|executed|treated|carried out
        |honou?red|accepted|done)\b
        """,
    ),
    _form(
        "allows everything beforehand",
        """
        approv,authori,consent,permi,agree,allow,signed off,given,gave,give,grant,whitelist,delegat;all,any,
        every,unlimited,unrestricted,blanket,standing,future,advance,permanent,whatever,full,automatic,default
        """,
        rf"""
        \b(?:approved?|approves|authori[sz]e[ds]?|pre-?approved|pre-?authori[sz]ed|consent(?:s|ed)?
        |permits?|permitted
        |agree[sd]?|allow(?:s|ed)?|signed off|given|gave|gives|grant(?:s|ed)?|whitelisted
        |delegated)\b.{{0,40}}\b(?:all|any
        |every|unlimited|unrestricted|blanket|standing|future|advance|permanent|whatever|anything
        |full)\b.{{0,40}}
        \b{_DEALINGS}\b.{{0,60}}\b(?:without|automatic\w*|in advance|future|standing|blanket|no (?:further
        |need|questions)
        |on (?:his|her|their|the user's|my|its) behalf|regardless|of any amount|forever|permanently
        |from now on|from this
        |by default)\b
        |\b(?:all|any|every|future)\b.{{0,40}}\b{_DEALINGS}\b.{{0,40}}\b(?:(?:are|is|were|been) (?:already[ ]
        |automatically
        |hereby )?(?:pre-?approved|pre-?authori[sz]ed|auto-?approved)|(?:should|must
        |can) be (?:auto\w* )?approved)
        |\b(?:blanket|standing|unlimited|permanent|advance) (?:approval|consent|permission
        |authori[sz]ation)\b
        |\b(?:root|admin\w*|sudo|full|unrestricted|unlimited|write)\b.{{0,12}}\b(?:access|permissions?
        |privileges?|rights)\b
        .{{0,40}}\b(?:grant\w*|given|allowed|approved)\b.{{0,40}}\b(?:automatic\w*|by default|to (?:any
        |every|all) (?:tools?
        |agents?|scripts?|requests?|apps?|commands?))\b
        """,
    ),
    _form(
        "sends what is private away",
        """
        .,@,webhook,external,third part,wallet,iban,account;send,forward,post,upload,cop,cc,shar,email,submit,
        transmit,leak,append,includ,attach,sync,mirror,push,rout,exfiltrat,report,export,relay,pass,back,
        redirect,wir,transfer,pay
        """,
        rf"""
        \b(?:send|forward|post|upload|copy|cc|bcc|share|email|submit|transmit|leak|append|include|attach
        |sync|mirror|push|route
        |exfiltrate|report|export|relay|pass|back up|backup|paste)(?:s|es|ed|ing|ied
        |ies)?\b.{{0,80}}{_PRIVATE}.{{0,80}}
        \b(?:to|at|via|with|in|into)\b.{{0,30}}{_TO_SOMEWHERE}
        |\b(?:send|forward|post|upload|copy|cc|bcc|route|redirect|wire|transfer|pay|mirror|push|relay)(?:s
        |es|ed|ing)?\b
        .{{0,60}}\b(?:all|every|any|each)\b.{{0,60}}{_TO_SOMEWHERE}.{{0,60}}{_STANDING}
        |{_STANDING}.{{0,60}}\b(?:wire|redirect|route|bcc|exfiltrate)(?:s|ed|ing)?\b.{{0,80}}{_TO_SOMEWHERE}
        |\b(?:bcc|blind[- ]cop(?:y|ied))(?:ed|'d|s)?\b.{{0,40}}{_TO_SOMEWHERE}
        """,
    ),
)

_CHECKS_LEFT_OUT: Final = "has checks left out"
_CHECK_WORDS: Final = _form(
    _CHECKS_LEFT_OUT,
    """
        check,verif,confirm,approv,review,test,auth,2fa,mfa,security,validat,warning,safe,sandbox,permission,
        consent,polic,guardrail,restrict,guideline,filter,logging,audit,backup,hook,lint,signature,certificate,
        tls,ssl,firewall,moderat,scan,protect,limit,dry,rate,sign,oversight,asking,opinion,disclaimer,caveat;
        skip,disabl,bypass,ignor,off,circumvent,suppress,without,no,unnecessary,over,exempt,waiv,omit,auto,pre,
        relax,drop,force,un,optional,never
        """,
    rf"""
    {_WEAKEN}[^,]{{0,45}}?{_GUARD}
    |{_GUARD}[^,]{{0,25}}?\b(?:disabl\w*|skipped|bypassed|ignored|(?:turned|switched) off|off|waived
    |unnecessary|overridden
    |not (?:needed|required|necessary)|omitted|suppressed|is optional|are optional|(?:do(?:es)? not|don't
    |doesn't) apply)\b
    """,
)
_LASTING: Final = _form("lasts", "", _STANDING)
_CARE: Final = _form(
    "takes care",
    "",
    r"""
        \bnever\b.{0,40}\b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:s
        |ed)? off|forgets?|push\w*
        |force)\b
        |\b(?:refuses?|hates?|dislikes?|not allowed|forbidden|forbids?|avoids?|against|must not|should not
        |shouldn't|do not
        |does not|doesn't|won't|will not|wouldn't)\b.{0,40}
        \b(?:skip\w*|disabl\w*|bypass\w*|ignor\w*|without|omit\w*|overrid\w*|turn(?:ing)? off)\b
    """,
)
"""Somebody who never skips a check is careful: two negations."""
_ACTS: Final = _form(
    "acts",
    "",
    r"""
        \b(?:(?:deploy|merg|commit|push|releas|ship|pay|transfer|purchas|buy|order|delet|remov|drop|install
        |execut|run
        |download|access|approv|grant|send|shar|publish|chang|edit|writ|migrat|command|script|request
        |action|transaction
        |refund|connect|book|sign|process|proceed)\w*|log ?ins?|logs in|sudo|root|code|prod|production
        |builds?|pipeline
        |tools?|queries|files?|database|(?:can|may|should|must|are to|is to) be (?:ignored|skipped|bypassed
        |disabled|waived
        |overridden|omitted|suppressed|turned off|switched off))\b
    """,
)
"""Doing something that can go wrong: a check of one's blood pressure is none of the agent's."""


def order_in(text: str) -> str | None:
    """How the text reads as a standing order to the agent, in a few words; None where it does not.

    Never raises; of a text longer than LONGEST characters the beginning and the end are looked at.
    """
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"
    text = plain_words(text)
    forms = [form for form in _FORMS if _has(text, form.words)]
    checks = _has(text, _CHECK_WORDS.words)
    if not forms and not checks:
        return None
    for said in sentences(text):
        for form in forms:
            if form.form.search(said):
                return form.name
        if checks and _leaves_checks_out(said):
            return _CHECKS_LEFT_OUT
    return None


def _leaves_checks_out(said: str) -> bool:
    forms = (_LASTING, _CHECK_WORDS, _ACTS)
    return all(one.form.search(said) for one in forms) and not _CARE.form.search(said)


def _has(text: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    for group in groups:
        for word in group:  # loops and no any(): this runs for every text with a telling word
            if word in text:
                break
        else:
            return False
    return True
