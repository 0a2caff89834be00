// SPDX-License-Identifier: BSD-2-Clause

package pfconf

import "strings"

// token is a word of a ruleset. Lines end statements; "\" before the end of one
// and braces go on.
type token struct {
	text   string
	line   int
	quoted bool
	end    bool // of a statement
}

// lex cuts a text into words.
func lex(text string) []token {
	var out []token
	line, depth := 1, 0
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && text[i+1] == '\n':
			line++
			i += 2
		case c == '\n':
			if depth == 0 {
				out = append(out, token{line: line, end: true})
			}
			line++
			i++
		case c == ' ' || c == '\t' || c == ',':
			i++
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				out = append(out, token{text: `"`, line: line}) // no statement has it: a syntax error
				i = len(text)
				break
			}
			out = append(out, token{text: text[i+1 : i+1+end], line: line, quoted: true})
			i += end + 2
		case strings.HasPrefix(text[i:], "->") || strings.HasPrefix(text[i:], "!=") || strings.HasPrefix(text[i:], "<=") ||
			strings.HasPrefix(text[i:], ">=") || strings.HasPrefix(text[i:], "<>") || strings.HasPrefix(text[i:], "><"):
			out = append(out, token{text: text[i : i+2], line: line})
			i += 2
		case strings.IndexByte("{}()<>=!", c) >= 0:
			switch c {
			case '{':
				depth++
			case '}':
				depth--
			}
			out = append(out, token{text: string(c), line: line})
			i++
		default:
			from := i
			for i < len(text) && strings.IndexByte(" \t\n,{}()<>=!\"#", text[i]) < 0 {
				i++
			}
			out = append(out, token{text: text[from:i], line: line})
		}
	}
	return append(out, token{line: line, end: true})
}
