"""Writes temper/text/unicode_tables.h: where Hugging Face's tokenizers and the C libraries differ about a character.

Usage: python make_unicode_tables.py OUTPUT

tokenizers 0.23 classifies characters by Unicode 16 (Oniguruma in patterns), by the Rust library's version (white space,
numeric, lower case), by Unicode 8 (punctuation) and normalises by Unicode 10. PCRE2 10.42 has Unicode 14 and utf8proc
2.8 has Unicode 15. Every code point is asked of both sides here; the table holds the differences.
"""

import ctypes
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
PCRE2_UTF_UCP = 0x00080000 | 0x00020000
STABLE, COMPAT, COMPOSE, DECOMPOSE = 1 << 1, 1 << 2, 1 << 3, 1 << 4
pcre2 = ctypes.CDLL("libpcre2-8.so.0")
pcre2.pcre2_compile_8.restype = ctypes.c_void_p
pcre2.pcre2_match_data_create_from_pattern_8.restype = ctypes.c_void_p
utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_map.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
utf8proc.utf8proc_map.restype = ctypes.c_ssize_t
utf8proc.utf8proc_tolower.argtypes = [ctypes.c_int32]
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]


def removed_by(pre_tokenizer):
    return {c for c in POINTS if not pre_tokenizer.pre_tokenize_str(chr(c))}


def split_off_by(pre_tokenizer):
    return {c for c in POINTS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c))) == 2}


def pcre2_class(pattern):
    error, offset = ctypes.c_int(), ctypes.c_size_t()
    raw = pattern.encode()
    code = ctypes.c_void_p(
        pcre2.pcre2_compile_8(raw, len(raw), PCRE2_UTF_UCP, ctypes.byref(error), ctypes.byref(offset), None))
    data = ctypes.c_void_p(pcre2.pcre2_match_data_create_from_pattern_8(code, None))
    found = set()
    for c in POINTS:
        text = chr(c).encode()
        if pcre2.pcre2_match_8(code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(0), 0, data, None) > 0:
            found.add(c)
    return found


def utf8proc_normal(text, options):
    out = ctypes.c_void_p()
    raw = text.encode()
    n = utf8proc.utf8proc_map(raw, len(raw), ctypes.byref(out), options)
    result = ctypes.string_at(out.value, n).decode()
    libc.free(out.value)
    return result


def normalised_otherwise():
    forms = [(normalizers.NFC(), STABLE | COMPOSE), (normalizers.NFD(), STABLE | DECOMPOSE),
             (normalizers.NFKC(), STABLE | COMPOSE | COMPAT), (normalizers.NFKD(), STABLE | DECOMPOSE | COMPAT)]
    differ = {0x11930, 0x11935}  # the two halves of U+11938, which Unicode 13 added
    differ.add(0x11A7)  # utf8proc 2.8 composes it with the Hangul syllable before it, and loses it
    for normalizer, options in forms:
        for c in POINTS:
            # Marks of classes 240 and 1 about the character show a difference in its combining class.
            for text in (chr(c), "a\u0345" + chr(c), "a" + chr(c) + "\u0334"):
                if normalizer.normalize_str(text) != utf8proc_normal(text, options):
                    differ.add(c)
    return differ


def table(name, comment, points):
    ranges = []
    for c in sorted(points):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    lines, line = [], "   "
    for first, last in ranges:
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    return f"// {comment}\ninline constexpr CharRange {name}[] = {{\n" + "\n".join(lines + [line]) + "\n};\n"


def main():
    parts = ["// Made by tests/golden/make_unicode_tables.py, which says what is compared.\n#pragma once\n\nnamespace temper {\n\n"
             "struct CharRange {\n  char32_t first, last;\n};\n"]
    for name in ["L", "Lu", "Ll", "Lo", "Lm", "M", "N", "Nd", "P", "S", "Han"]:
        pattern = "\\p{%s}" % name
        ours = pcre2_class("\\p{sc:Han}" if name == "Han" else pattern)
        new = removed_by(pre_tokenizers.Split(Regex(pattern), "removed")) - ours
        parts.append(table(f"kNew{name}", f"In \\p{{{name}}} of Oniguruma, not of PCRE2.", new))
    word = removed_by(pre_tokenizers.Split(Regex(r"\w"), "removed"))
    parts.append(table("kNewWord", "In \\w of Oniguruma, not Alphabetic, M, Nd or Pc in PCRE2.",
                       word - pcre2_class(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]")))
    parts.append(table("kNewNumeric", "Numeric in Rust, not N in PCRE2.",
                       split_off_by(pre_tokenizers.Digits(True)) - pcre2_class(r"\p{N}")))
    ours = pcre2_class(r"[\p{P}!-/:-@\[-`{-~]")
    punctuation = split_off_by(pre_tokenizers.Punctuation("isolated"))
    later = removed_by(pre_tokenizers.Split(Regex(r"\p{P}"), "removed"))
    parts.append(table("kLaterPunctuation", "P in Unicode 16, not by tokenizers' table.", (ours | later) - punctuation))
    parts.append(table("kFormerPunctuation", "P by tokenizers' table, no longer in Unicode.", punctuation - ours))
    parts.append(table("kNormalizedOtherwise", "New to tokenizers' normalisation: neither decomposed, nor composed, "
                       "nor reordered.", normalised_otherwise()))
    lower = normalizers.Lowercase()
    rows = []
    for c in POINTS:
        theirs = lower.normalize_str(chr(c))
        if len(theirs) == 1 and ord(theirs) != utf8proc.utf8proc_tolower(c):
            rows.append((c, ord(theirs) - c))
    runs = []
    for c, shift in rows:
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == shift:
            runs[-1][1] = c
        else:
            runs.append([c, c, shift])
    parts.append("// Lower case in Rust, not in utf8proc: the character plus `shift`.\nstruct CharShift {\n"
                 "  char32_t first, last;\n  int shift;\n};\ninline constexpr CharShift kNewLowercase[] = {\n" +
                 "".join(f"    {{0x{a:X}, 0x{b:X}, {s}}},\n" for a, b, s in runs) + "};\n")
    with open(sys.argv[1], "w") as out:
        out.write("\n".join(parts) + "\n}  // namespace temper\n")


main()
