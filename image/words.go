// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"fmt"
	"strings"
)

// splitWords cuts a line at white space outside of quotes; quotes and
// backslashes stay in the words, for expandWord. There is at least one word.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && quote != '\'':
			if i+1 == len(line) {
				return nil, errors.New("the line ends in a backslash")
			}
			word.WriteByte(c)
			i++
			word.WriteByte(line[i])
			in = true
			continue
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == ' ' || c == '\t':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
			continue
		}
		word.WriteByte(c)
		in = true
	}
	if quote != 0 {
		return nil, fmt.Errorf("unexpected end of statement while looking for matching quote %q", quote)
	}
	if in {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("there is no argument")
	}
	return words, nil
}

// expandWord takes quotes and backslashes off and puts in $name, ${name},
// ${name:-word} and ${name:+word} from env, as a Dockerfile does; an unknown
// name is empty. Within single quotes all is literal.
func expandWord(word string, env []string) (string, error) {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(word); i++ {
		c := word[i]
		switch {
		case quote == '\'':
			if c == '\'' {
				quote = 0
			} else {
				out.WriteByte(c)
			}
		case c == '\\':
			if i+1 == len(word) {
				return "", errors.New("a word ends in a backslash")
			}
			i++
			if quote == '"' && word[i] != '"' && word[i] != '$' && word[i] != '\\' {
				out.WriteByte(c)
			}
			out.WriteByte(word[i])
		case c == '"':
			if quote == '"' {
				quote = 0
			} else {
				quote = '"'
			}
		case c == '\'' && quote == 0:
			quote = '\''
		case c == '$':
			value, n, err := expandVariable(word[i:], env)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			i += n - 1
		default:
			out.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", fmt.Errorf("unexpected end of statement while looking for matching quote %q", quote)
	}
	return out.String(), nil
}

// expandVariable expands the variable that s, which starts with a dollar
// sign, begins with, and tells how many bytes it took.
func expandVariable(s string, env []string) (value string, n int, err error) {
	if !strings.HasPrefix(s, "${") {
		k := nameLength(s[1:])
		if k == 0 {
			return "$", 1, nil
		}
		return lookup(env, s[1:1+k]), 1 + k, nil
	}
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return "", 0, errors.New("syntax error: missing '}'")
	}
	inner := s[2:end]
	k := nameLength(inner)
	if k == 0 {
		return "", 0, fmt.Errorf("bad substitution: ${%s}", inner)
	}
	value = lookup(env, inner[:k])
	switch rest := inner[k:]; {
	case rest == "":
	case strings.HasPrefix(rest, ":-"):
		if value == "" {
			value = rest[2:]
		}
	case strings.HasPrefix(rest, ":+"):
		if value != "" {
			value = rest[2:]
		}
	default:
		return "", 0, fmt.Errorf("unsupported modifier in substitution: ${%s}", inner)
	}
	return value, end + 1, nil
}

// nameLength is how many bytes of s's start are a variable's name.
func nameLength(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9' {
			continue
		}
		return i
	}
	return len(s)
}

func lookup(env []string, name string) string {
	for _, e := range env {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v
		}
	}
	return ""
}
