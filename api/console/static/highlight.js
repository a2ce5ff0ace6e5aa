// The colours of source text. Each pattern is linear, because files of sandboxes must not stop the page.

const DOUBLE = String.raw`"[^"\\\n]*(?:\\.[^"\\\n]*)*"?`;
const SINGLE = String.raw`'[^'\\\n]*(?:\\.[^'\\\n]*)*'?`;
const TEMPLATE = "`[^`\\\\]*(?:\\\\[^][^`\\\\]*)*`?";
const TRIPLE = String.raw`"""[^]*?(?:"""|$(?![^]))|'''[^]*?(?:'''|$(?![^]))`;
const BLOCK = String.raw`/\*[^]*?(?:\*/|$(?![^]))`;
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?)`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;

const list = (text) => new Set(text.split(" "));
const C_WORDS = list("abstract async await bool boolean break case catch char class const constexpr continue def default defer delete do double else enum export extends extern false final finally float fn for from func function go if impl implements import in int interface let long loop map match mod mut namespace new nil null of operator package private protected pub public range return self short signed static string struct super switch template this throw throws trait true try type typedef typeof undefined union unsafe unsigned use using var virtual void volatile where while yield");
const HASH_WORDS = list("False None True and as assert async await begin break case class continue def del do done elif else elsif end esac except exit export fi finally for from function global if import in is lambda local match module nonlocal not or pass raise require rescue return self set then true false try unless until while with yield");
const SQL_WORDS = list("add all alter and as asc begin between by case cast check column commit constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then transaction true false union unique update using values view when where with");
const DATA_WORDS = list("true false null yes no on off");

function language(words, { comment, string, mark }) {
  const kinds = { comment, string, mark, number: NUMBER, word: WORD };
  const parts = Object.entries(kinds).filter(([, pattern]) => pattern);
  return { words, pattern: new RegExp(parts.map(([kind, pattern]) => `(?<${kind}>${pattern})`).join("|"), "gm") };
}

const QUOTED = `${DOUBLE}|${SINGLE}`;
const C = language(C_WORDS, { comment: `//.*|${BLOCK}`, string: `${QUOTED}|${TEMPLATE}` });
const HASH = language(HASH_WORDS, { comment: "#.*", string: `${TRIPLE}|${QUOTED}`, mark: String.raw`^[ \t]*@[\w.]+` });
const SQL = language(SQL_WORDS, { comment: `--.*|${BLOCK}`, string: QUOTED });
const DATA = language(DATA_WORDS, { comment: "[#;].*", string: QUOTED, mark: String.raw`^[ \t]*\[[^\]\n]*\]|^[ \t]*(?:- )?[\w.-]+(?=[ \t]*[:=])` });
const JSON_TEXT = language(DATA_WORDS, { string: DOUBLE });
const STYLE = language(new Set(), { comment: BLOCK, string: QUOTED, mark: String.raw`@[\w-]+|--[\w-]+|#[\w-]+` });
const MARKUP = language(new Set(), { comment: String.raw`<!--[^]*?(?:-->|$(?![^]))`, string: QUOTED, mark: String.raw`</?[\w:!-]*|/?>` });
const PROSE = language(new Set(), { mark: String.raw`^#{1,6} .*|^\x60\x60\x60.*|^[ \t]*[-*] `, string: String.raw`\x60[^\x60\n]*\x60?` });
const DIFF = language(new Set(), { comment: "^(?:@@|diff|index).*", string: String.raw`^\+.*`, mark: "^-.*" });

const BY_ENDING = new Map(Object.entries({
  C: "c cc cpp cs cxx dart go h hpp java js jsx kt m mjs php rs scala swift ts tsx zig",
  HASH: "bash cmake ex exs mk pl py pyi r rb sh zsh", SQL: "sql", DATA: "cfg conf env ini properties toml yaml yml",
  JSON_TEXT: "json jsonl ipynb", STYLE: "css less scss", MARKUP: "htm html svg vue xhtml xml", PROSE: "markdown md rst",
  DIFF: "diff patch",
}).flatMap(([name, endings]) => endings.split(" ").map((ending) => [ending, name])));
const LANGUAGES = { C, HASH, SQL, DATA, JSON_TEXT, STYLE, MARKUP, PROSE, DIFF };
const BY_NAME = { dockerfile: "HASH", makefile: "HASH", gemfile: "HASH" };

/** The text as `[kind, text]` pieces, by the file's name; kinds are comment, string, mark, number, keyword and "". */
export function highlighted(text, name) {
  const lower = name.toLowerCase();
  const found = LANGUAGES[BY_NAME[lower] ?? BY_ENDING.get(lower.split(".").pop())];
  if (!found) return [["", text]];
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(found.pattern)) {
    const kind = kindOf(match, found);
    if (!kind) continue;
    if (match.index > from) pieces.push(["", text.slice(from, match.index)]);
    pieces.push([kind, match[0]]);
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push(["", text.slice(from)]);
  return pieces;
}

function kindOf({ groups }, { words }) {
  if (groups.word === undefined) return Object.keys(groups).find((kind) => groups[kind] !== undefined);
  const word = words === SQL_WORDS ? groups.word.toLowerCase() : groups.word;
  return words.has(word) ? "keyword" : null;
}
