// SPDX-License-Identifier: BSD-2-Clause

package pfconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// orders are the groups in which statements must come (pf.conf(5)); macros
// and tables may be anywhere.
const orderText = "Rules must be in order: options, ethernet, normalization, queueing, translation, filtering"

var order = map[string]int{
	"set": 0, "scrub": 2,
	"nat": 4, "rdr": 4, "binat": 4, "no": 4, "nat-anchor": 4, "rdr-anchor": 4, "binat-anchor": 4,
	"pass": 5, "block": 5, "match": 5, "anchor": 5, "antispoof": 5,
}

// parser reads statements.
type parser struct {
	tokens []token
	at     int
	macros map[string]string
	stage  int
	out    Ruleset
}

// Parse reads a ruleset; the error is the first refusal.
func Parse(text string) (Ruleset, error) {
	p := &parser{tokens: lex(text), macros: map[string]string{}}
	err := p.file()
	return p.out, err
}

func (p *parser) file() error {
	for p.at < len(p.tokens) {
		if p.tokens[p.at].end {
			p.at++
			continue
		}
		if err := p.statement(); err != nil {
			return err
		}
		if !p.peek().end {
			return p.syntax()
		}
	}
	return nil
}

func (p *parser) peek() token {
	if p.at < len(p.tokens) {
		return p.tokens[p.at]
	}
	return token{end: true, line: p.tokens[len(p.tokens)-1].line}
}

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

// is takes the next word if it is that.
func (p *parser) is(word string) bool {
	if t := p.peek(); !t.end && !t.quoted && t.text == word {
		p.at++
		return true
	}
	return false
}

func (p *parser) syntax() error { return &Error{p.peek().line, "syntax error"} }

func (p *parser) refuse(format string, args ...any) error {
	return &Error{p.peek().line, fmt.Sprintf(format, args...)}
}

// word is the next word, a macro's value when it is one.
func (p *parser) word() (string, error) {
	t := p.next()
	if t.end {
		p.at--
		return "", p.syntax()
	}
	if name, ok := strings.CutPrefix(t.text, "$"); ok && !t.quoted {
		v, ok := p.macros[name]
		if !ok {
			return "", &Error{t.line, fmt.Sprintf("macro '%s' not defined", name)}
		}
		return v, nil
	}
	return t.text, nil
}

func (p *parser) statement() error {
	first := p.next()
	if p.is("=") { // a macro
		v, err := p.word()
		p.macros[first.text] = v
		return err
	}
	if first.text == "table" {
		return p.table()
	}
	at, ok := order[first.text]
	if !ok || first.quoted {
		p.at--
		return p.syntax()
	}
	if at < p.stage {
		return &Error{first.line, orderText}
	}
	p.stage = at
	switch first.text {
	case "set":
		if p.is("skip") {
			return p.skip()
		}
		return p.rest("block-policy", "limit", "timeout", "optimization", "state-policy", "debug", "loginterface", "ruleset-optimization",
			"state-defaults", "fingerprints", "require-order", "hostid", "reassemble", "syncookies", "keepcounters")
	case "anchor", "nat-anchor", "rdr-anchor", "binat-anchor":
		return p.anchor(Kind(first.text))
	case "nat", "rdr", "binat":
		return p.translation(Kind(first.text), false)
	case "no":
		w := p.next()
		if w.text != "nat" && w.text != "rdr" && w.text != "binat" {
			p.at--
			return p.syntax()
		}
		return p.translation(Kind(w.text), true)
	case "antispoof":
		return p.rest("for", "log", "quick")
	}
	return p.filter(Kind(first.text))
}

// rest takes a statement whose first word is one of those, and whose others
// do not matter here.
func (p *parser) rest(first ...string) error {
	if w := p.peek(); !slices.Contains(first, w.text) {
		return p.syntax()
	}
	for !p.peek().end {
		p.at++
	}
	return nil
}

func (p *parser) skip() error {
	if !p.is("on") {
		return p.syntax()
	}
	names, err := p.choices(p.word)
	p.out.Skip = append(p.out.Skip, names...)
	return err
}

func (p *parser) angle() (string, error) {
	if !p.is("<") {
		return "", p.syntax()
	}
	name, err := p.word()
	if err != nil {
		return "", err
	}
	if !p.is(">") {
		return "", p.syntax()
	}
	if len(name) > MaxTable {
		return "", p.refuse("table name '%s' too long", name)
	}
	return name, nil
}

func (p *parser) table() error {
	name, err := p.angle()
	if err != nil {
		return err
	}
	t := Table{Name: name}
	for !p.peek().end {
		switch {
		case p.is("persist"):
			t.Persist = true
		case p.is("const"), p.is("counters"):
		case p.is("file"):
			if _, err := p.word(); err != nil {
				return err
			}
		case p.is("{"):
			t.Given = true
			for !p.is("}") {
				not := p.is("!")
				a, err := p.word()
				if err != nil {
					return err
				}
				if !isAddress(a) {
					return p.refuse("could not parse host specification")
				}
				if not {
					a = "!" + a
				}
				t.Addrs = append(t.Addrs, a)
			}
		default:
			return p.syntax()
		}
	}
	p.out.Tables = append(p.out.Tables, t)
	return nil
}

func isAddress(s string) bool {
	_, err1 := netip.ParseAddr(s)
	_, err2 := netip.ParsePrefix(s)
	return err1 == nil || err2 == nil
}

func (p *parser) anchor(kind Kind) error {
	name, err := p.word()
	if err != nil {
		return err
	}
	p.out.Rules = append(p.out.Rules, Rule{Kind: kind, Name: name, From: End{Host: "any"}, To: End{Host: "any"}})
	for !p.peek().end { // which packets go there does not matter here
		p.at++
	}
	return nil
}

// choices are what a rule says of one thing: one, or a list in braces.
func (p *parser) choices(one func() (string, error)) ([]string, error) {
	if !p.is("{") {
		v, err := one()
		return []string{v}, err
	}
	var all []string
	for !p.is("}") {
		v, err := one()
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		return nil, p.syntax()
	}
	return all, nil
}

// multiply adds a rule for every combination.
func (p *parser) multiply(r Rule, protos []string, from, to [2][]string) error {
	for _, proto := range orOne(protos) {
		for _, fh := range orOne(from[0]) {
			for _, fp := range orOne(from[1]) {
				for _, th := range orOne(to[0]) {
					for _, tp := range orOne(to[1]) {
						if (fp != "" || tp != "") && proto != "tcp" && proto != "udp" && proto != "sctp" {
							return p.refuse("port only applies to tcp/udp/sctp")
						}
						one := r
						one.Proto, one.From, one.To = proto, End{fh, fp}, End{th, tp}
						p.out.Rules = append(p.out.Rules, one)
					}
				}
			}
		}
	}
	return nil
}

func orOne(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func (p *parser) translation(kind Kind, no bool) error {
	r := Rule{Kind: kind, No: no}
	if p.is("pass") {
		r.Pass = true
	}
	if p.is("log") {
		r.Log = true
	}
	protos, err := p.where(&r)
	if err != nil {
		return err
	}
	from, to, err := p.ends()
	if err != nil {
		return err
	}
	if p.is("tag") {
		if r.Tag, err = p.word(); err != nil {
			return err
		}
	}
	if p.is("tagged") {
		if r.Tagged, err = p.word(); err != nil {
			return err
		}
	}
	if no || !p.is("->") {
		if !no {
			return p.syntax() // there is nowhere to go
		}
		return p.multiply(r, protos, from, to)
	}
	r.Target = &Target{}
	if r.Target.Host, err = p.host(); err != nil {
		return err
	}
	if p.is("port") {
		if r.Target.Port, err = p.port(); err != nil {
			return err
		}
	}
	many := strings.HasPrefix(r.Target.Host, "<") || strings.HasPrefix(r.Target.Host, "(")
	for _, pool := range []string{"round-robin", "random", "source-hash", "bitmask"} {
		if p.is(pool) {
			if many && pool != "round-robin" && strings.HasPrefix(r.Target.Host, "<") {
				return p.refuse("tables are only supported in round-robin redirection pools")
			}
			r.Target.Pool = pool
		}
	}
	if many && r.Target.Pool == "" {
		r.Target.Pool = "round-robin"
	}
	p.is("static-port")
	p.is("sticky-address")
	return p.multiply(r, protos, from, to)
}

func (p *parser) filter(kind Kind) error {
	r := Rule{Kind: kind}
	if kind == Block {
		r.Return = "drop"
		for _, w := range []string{"drop", "return", "return-rst", "return-icmp"} {
			if p.is(w) {
				r.Return = w
			}
		}
	}
	for _, d := range []string{"in", "out"} {
		if p.is(d) {
			r.Dir = d
		}
	}
	r.Log = p.is("log")
	r.Quick = p.is("quick")
	protos, err := p.where(&r)
	if err != nil {
		return err
	}
	from, to, err := p.ends()
	if err != nil {
		return err
	}
	if r.Tail, err = p.tail(kind); err != nil {
		return err
	}
	return p.multiply(r, protos, from, to)
}

// tail reads what may stand behind the ends, and gives it as pfctl prints it.
func (p *parser) tail(kind Kind) (string, error) {
	var out []string
	state := kind == Pass
	for !p.peek().end {
		w := p.next()
		switch w.text {
		case "flags":
			v, err := p.word()
			if err != nil {
				return "", err
			}
			out = append(out, "flags "+v)
		case "keep", "modulate", "synproxy", "no":
			if !p.is("state") {
				return "", p.syntax()
			}
			state = false
			out = append(out, w.text+" state")
		case "label", "tag", "tagged", "rtable", "queue", "probability", "icmp-type":
			v, err := p.word()
			if err != nil {
				return "", err
			}
			if w.text == "label" {
				v = strconv.Quote(v)
			}
			out = append(out, w.text+" "+v)
		case "scrub":
			if kind == Scrub {
				p.at--
				return "", p.syntax()
			}
			options, err := p.parenthesis()
			if err != nil {
				return "", err
			}
			out = append(out, "scrub ("+options+")")
		case "fragment", "reassemble", "no-df", "random-id", "max-mss", "min-ttl", "tcp":
			if kind != Scrub {
				p.at--
				return "", p.syntax()
			}
			out = append(out, w.text)
			if w.text == "max-mss" || w.text == "min-ttl" {
				v, err := p.word()
				if err != nil {
					return "", err
				}
				out = append(out, v)
			}
		case "allow-opts":
			out = append(out, w.text)
		default:
			p.at--
			return "", p.syntax()
		}
	}
	if state {
		out = append([]string{"flags S/SA keep state"}, out...)
	}
	if kind == Scrub && len(out) == 0 {
		out = []string{"fragment reassemble"}
	}
	return strings.Join(out, " "), nil
}

func (p *parser) parenthesis() (string, error) {
	if !p.is("(") {
		return "", p.syntax()
	}
	var words []string
	for !p.is(")") {
		w, err := p.word()
		if err != nil {
			return "", err
		}
		words = append(words, w)
	}
	return strings.Join(words, " "), nil
}
