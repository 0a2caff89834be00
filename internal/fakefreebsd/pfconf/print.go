// SPDX-License-Identifier: BSD-2-Clause

package pfconf

import (
	"fmt"
	"strconv"
	"strings"
)

// services are names of ports as /etc/services has them, as far as they occur.
var services = map[string]int{"ssh": 22, "smtp": 25, "domain": 53, "http": 80, "ntp": 123, "https": 443, "http-alt": 8080, "postgresql": 5432}

// Print is the rule as pfctl lists it; ports by number where -P asks for it.
func (r Rule) Print(numbers bool) string {
	var b strings.Builder
	add := func(words ...string) {
		for _, w := range words {
			if w != "" {
				if b.Len() > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(w)
			}
		}
	}
	if r.No {
		add("no")
	}
	add(string(r.Kind))
	if r.Name != "" {
		add(strconv.Quote(r.Name), "all")
		return b.String()
	}
	if r.Pass {
		add("pass")
	}
	add(r.Return, r.Dir)
	if r.Log {
		add("log")
	}
	if r.Quick {
		add("quick")
	}
	if r.On != "" {
		add("on", r.On)
	}
	add(r.AF)
	if r.Proto != "" {
		add("proto", r.Proto)
	}
	if r.From == (End{Host: "any"}) && r.To == r.From {
		add("all")
	} else {
		add("from", r.From.print(numbers), "to", r.To.print(numbers))
	}
	if r.Tag != "" {
		add("tag", r.Tag)
	}
	if r.Tagged != "" {
		add("tagged", r.Tagged)
	}
	if t := r.Target; t != nil {
		add("->", t.Host)
		if t.Port != "" {
			add("port", t.Port)
		}
		add(t.Pool)
	}
	tail := r.Tail
	if r.Proto != "" && r.Proto != "tcp" {
		tail = strings.TrimPrefix(tail, "flags S/SA ")
	}
	add(tail)
	return b.String()
}

func (e End) print(numbers bool) string {
	host := e.Host
	if host == "" {
		host = "any"
	}
	if e.Port == "" {
		return host
	}
	port := e.Port
	if n, err := strconv.Atoi(port); err == nil {
		port = "= " + port
		for name, number := range services {
			if number == n && !numbers {
				port = "= " + name
			}
		}
	}
	return fmt.Sprintf("%s port %s", host, port)
}
